"""Measure 6 of the client: an audit of its epsilon by what it sends, and of five clients that are broken on purpose.

The client draws from the operating system, as it ships. Each bound lies above the true loss at most once in a thousand
audits, whatever the client does, as long as its entries' transcripts are independent of one another. Contradictions and
missing reports are counted, and are certain.
"""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import TypeAlias

from changeling_protocol import Coins

from .client_audit_bound import FALSE_ALARM, audited
from .client_audit_broken import BROKEN
from .client_audit_cases import CASES
from .client_audit_transcripts import Heard, Transcript, transcripts

TRANSCRIPTS = 40_000
"""Of each survey, half of them of each of the two ways to live."""
CLIENT = 1_000
"""How many entries one client has."""
INTERRUPTED = 10
"""Of so many clients one is interrupted, so that it sends again what it had sent."""
Batch: TypeAlias = tuple[int, int]
"""Which of the two ways to live, and the number of the client."""


@dataclass(frozen=True, slots=True)
class Audit:
    """What is audited, and by how many transcripts.

    case: a name in CASES. broken: a name in BROKEN; None for the client as it ships. restless: whether the ways to live
    are those of apps that say something new in every period, instead of the worst pair of changelogs.
    """

    case: str
    broken: str | None = None
    restless: bool = False
    count: int = 20_000


@dataclass(frozen=True, slots=True)
class Found:
    """The lower bound on epsilon and the ledger's figure, in nats; what came with two contents; what never came."""

    bound: float
    ledger: float
    contradictions: int
    missing: int

    @property
    def caught(self) -> bool:
        """Whether the client does not keep what its ledger states."""
        return self.bound > self.ledger or self.contradictions > 0 or self.missing > 0


SHIPPED = {
    "krr": Audit("krr", count=TRANSCRIPTS),
    "joint": Audit("joint", count=TRANSCRIPTS),
    "signed": Audit("signed"),
    "states": Audit("states"),
    "krr_restless": Audit("krr", restless=True),
    "signed_restless": Audit("signed", restless=True),
}
CAUGHT = {
    "two_symbols": Audit("krr", "two_symbols", count=2_000),
    "only_on_change": Audit("krr", "only_on_change", count=2_000),
    "odds_off": Audit("states", "odds_off"),
    "unconstrained": Audit("signed", "unconstrained", restless=True),
    "slots_reset": Audit("joint", "slots_reset", count=40_000),
}
"""The broken clients, each on a survey where it does harm."""


def measure() -> dict[str, float]:
    """Of each survey the bound, the exact loss and the ledger's figure; of each broken client what gives it away."""
    audits = SHIPPED | {f"broken_{name}": audit for name, audit in CAUGHT.items()}
    figures: dict[str, float] = {
        "6_false_alarm_rate": FALSE_ALARM,
        "6_transcripts": sum(audit.count for audit in audits.values()),
    }
    with ProcessPoolExecutor(os.cpu_count()) as workers:
        for name, audit in audits.items():
            began = monotonic()
            found = run(audit, _its_own, workers.map)
            figures |= {
                f"6_{name}_lower_bound": found.bound,
                f"6_{name}_ledger": found.ledger,
                f"6_{name}_contradictions": found.contradictions,
                f"6_{name}_missing": found.missing,
                f"6_{name}_seconds": monotonic() - began,
            }
            if audit.broken:
                figures[f"6_{name}_caught"] = found.caught
            elif not audit.restless:
                exact = CASES[audit.case].exact
                figures |= {f"6_{name}_exact": exact, f"6_{name}_share": found.bound / exact}
    figures["6_seconds"] = sum(number for figure, number in figures.items() if figure.endswith("_seconds"))
    return figures


def run(
    audit: Audit,
    coins: Callable[[Batch], Coins | None],
    mapped: Callable[[Callable[[Batch], Heard], Iterable[Batch]], Iterable[Heard]] = map,
    false_alarm: float = FALSE_ALARM,
) -> Found:
    """Carries out an audit.

    coins: gives a test's own for each client, or None for those that it ships with.
    mapped: `map`, or that of an executor.
    false_alarm: how often the bound may lie above the true loss.
    """
    case = CASES[audit.case]
    pair = case.restless_pair if audit.restless else case.worst_pair(audit.count // 2)
    size = min(CLIENT, audit.count // 2)
    batches = [(way, client) for way in range(2) for client in range(audit.count // 2 // size)]
    heard = list(mapped(partial(_heard, audit, pair, size, coins), batches))
    ways: tuple[list[Transcript], list[Transcript]] = [], []
    for (way, _), batch in zip(batches, heard, strict=True):
        ways[way].extend(batch.transcripts)
    return Found(
        bound=audited(*ways, false_alarm),
        ledger=float(max(batch.epsilon for batch in heard)),
        contradictions=sum(batch.contradictions for batch in heard),
        missing=sum(batch.missing for batch in heard),
    )


def _heard(
    audit: Audit,
    pair: tuple[tuple[int, ...], tuple[int, ...]],
    size: int,
    coins: Callable[[Batch], Coins | None],
    batch: Batch,
) -> Heard:
    way, client = batch
    with BROKEN[audit.broken]():
        return transcripts(CASES[audit.case].survey, pair[way], size, coins(batch), client % INTERRUPTED == 0)


def _its_own(_: Batch) -> None:
    """The client draws from the coins that it ships with."""
