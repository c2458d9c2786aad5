"""Measure 5 of the client: whatever its user does, the same requests leave it at the same times.

By the same clock, however it leaps, with the same failures, restarts and coins for delays, behaviours are compared in
pairs as sequences of (time, method, address, headers, size), seen at the fake server and through a declared relay.
"""

import logging
import os
import random
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import combinations
from multiprocessing import get_context
from typing import Any

from tests.client_sdk.test_traffic import DOES, FIRST, MODES, YEAR, answered, lived

LIVES, BEHAVIOURS, SEED = 30, 4, 5
"""Scripts of clocks and failures; and behaviours drawn for each, beside those that have a name."""
Script = tuple[list[tuple[int, str, bool, bool]], list[tuple[int, float]]]
"""At each step the seconds to wait, how the server is, whether to flush, and whether to start again; then the leaps."""


def measure() -> dict[str, float]:
    """How many lives, pairs and requests were compared, and in how many pairs anything differed."""
    cases = [(number, relayed) for number in range(LIVES) for relayed in (False, True)]
    with _quiet_workers() as workers:
        compared = list(workers.map(compare, cases, chunksize=4))
    figures: dict[str, float] = {"5_scripts": float(LIVES)}
    for name, relayed in (("server", False), ("relay", True)):
        mine = [each for case, each in zip(cases, compared, strict=True) if case[1] is relayed]
        pairs, differences, requests, symbols = (float(sum(column)) for column in zip(*mine, strict=True))
        figures |= {
            f"5_pairs_{name}": pairs,
            f"5_differences_{name}": differences,
            f"5_requests_{name}": requests,
            f"5_pairs_of_unlike_reports_{name}": symbols,
        }
    with _quiet_workers() as workers:
        unlike = list(workers.map(steered, range(LIVES), chunksize=4))
    return figures | {
        "5_servers_compared": float(len(unlike)),
        "5_servers_that_steer": float(sum(unlike)),
        "5_pairs": figures["5_pairs_server"] + figures["5_pairs_relay"],
        "5_differences": figures["5_differences_server"] + figures["5_differences_relay"],
    }


def _quiet_workers() -> ProcessPoolExecutor:
    """Processes that do not log leaps of the clock, which are told, rightly."""
    quiet = logging.getLogger("changeling").setLevel
    return ProcessPoolExecutor(
        os.cpu_count(), mp_context=get_context("spawn"), initializer=quiet, initargs=(logging.CRITICAL,)
    )


def compare(case: tuple[int, bool]) -> tuple[int, int, int, int]:
    """Returns the pairs compared, those that differ, the requests of a life, and the pairs whose flushes or stores
    would have differed if anything hung on the answers: those that recorded differently."""
    number, relayed = case
    chance = random.Random(f"{SEED} {number}")  # noqa: S311
    steps, leaps = script(chance)
    behaviours = {**DOES, **{f"random {seed}": at_random(f"{SEED} {number} {seed}") for seed in range(BEHAVIOURS)}}
    told: list[tuple[Any, list[object]]] = []
    for does in behaviours.values():
        recorded: list[object] = []
        seen = lived(_noting(does, recorded), steps, leaps, relayed)  # type: ignore[no-untyped-call]
        told.append((seen, recorded))
    pairs = list(combinations(told, 2))
    return (
        len(pairs),
        sum(one != other for (one, _), (other, _) in pairs),
        len(told[0][0][0]),
        sum(one != other for (_, one), (_, other) in pairs),
    )


def steered(number: int) -> bool:
    """Whether what a device answers next, when, and how long it is hangs on how its server has treated it."""
    chance = random.Random(f"{SEED} {number} server")  # noqa: S311
    steps = [(chance.choice(MODES), chance.choice([1, 20, 61, 150])) for _ in range(chance.randrange(4, 10))]
    waits = [wait for _, wait in steps]
    return bool(answered([mode for mode, _ in steps], waits) != answered(["well"] * len(steps), waits))  # type: ignore[no-untyped-call]


def script(chance: random.Random) -> Script:
    """Waits, failures, flushes, restarts and leaps of the clock."""
    steps = [
        (chance.choice([0, 7, 31, 64, 150]), chance.choice(MODES), chance.random() < 0.7, chance.random() < 0.2)
        for _ in range(chance.randrange(3, 10))
    ]
    leaps = [
        (chance.randrange(9), chance.choice([-0.005, -3_600, YEAR, -YEAR, 0.5])) for _ in range(chance.randrange(3))
    ]
    return steps, leaps


def at_random(seed: str) -> Callable[[Any, int], object]:
    """A behaviour that records, retracts or does nothing, as a seed says."""
    chance = random.Random(seed)  # noqa: S311

    def does(handle: Any, _: int) -> object:
        answer = chance.choice([*FIRST.answers, "cocoa", None, "nothing at all"])
        if answer == "nothing at all":
            return None
        return handle.retract() if answer is None else handle.record(answer)

    return does


def _noting(does: Callable[[Any, int], object], recorded: list[object]) -> Callable[[Any, int], None]:
    """The behaviour, which writes down what became of each record."""

    def noted(handle: Any, step: int) -> None:
        recorded.append(does(handle, step))

    return noted
