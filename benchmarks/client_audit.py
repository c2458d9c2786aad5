"""Measure 6 of the client: an audit of its epsilon by what it sends, and of five clients that are broken on purpose.

The client draws from the operating system, as it ships. If no event is more than e^ε times likelier one way to live
than another, then ε >= ln(p/q) for every event, p and q being its chances. The event is chosen by some of the
transcripts, and p and q are bounded by the others, after Clopper and Pearson, each wrong with at most half of the
false-alarm rate. So each bound lies above the true loss at most once in a thousand audits, whatever the client does, as
long as its entries' transcripts are independent. Contradictions and missing reports are counted, and are certain.
"""

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from math import inf, log
from time import monotonic
from typing import Any
from unittest.mock import patch

from changeling_client import outbox
from changeling_client.outbox import ClosingAnswer
from changeling_protocol import (
    Coins,
    Group,
    Memory,
    Node,
    Odds,
    ReleasePlan,
    Report,
    SystemCoins,
    encode_upload,
    first_memory,
    respond,
)
from scipy.special import betaincinv

from .client_audit_lives import CASES, Heard, States, Transcript, transcripts

FALSE_ALARM = 0.001
"""How often a bound may lie above the true loss."""
CHOOSE = 3
"""Every third transcript helps to choose the event, and is then left out."""
TRANSCRIPTS = 40_000
"""Of each survey whose bound is held against the exact loss, half of them of each of the two ways to live."""
CLIENT = 1_000
"""How many entries one client has."""
INTERRUPTED = 10
"""Of so many clients one is interrupted, so that it sends again what it had sent."""


@dataclass(frozen=True, slots=True)
class Audit:
    """What is audited, and by how many transcripts.

    case: a name in CASES. broken: a name in BROKEN; None for the client as it ships. restless: whether the ways to live
    are those of apps that say something new in every period, instead of the worst pair of changelogs.
    """

    case: str
    broken: str | None = None
    restless: bool = False
    count: int = 10_000


AUDITS = {
    "krr": Audit("krr", count=TRANSCRIPTS),
    "joint": Audit("joint", count=TRANSCRIPTS),
    "signed": Audit("signed"),
    "states": Audit("states"),
    "krr_restless": Audit("krr", restless=True),
    "signed_restless": Audit("signed", restless=True),
    "broken_two_symbols": Audit("krr", "two_symbols", count=1_000),
    "broken_only_on_change": Audit("krr", "only_on_change", count=1_000),
    "broken_odds_off": Audit("states", "odds_off", count=20_000),
    "broken_unconstrained": Audit("signed", "unconstrained", restless=True, count=20_000),
    "broken_slots_reset": Audit("joint", "slots_reset", count=TRANSCRIPTS),
}
"""The client as it ships, and broken ones, each on a survey where it does harm."""


def measure() -> dict[str, float]:
    """Of each survey the bound, and its share of the ledger's figure; of each broken client whether it is caught."""
    figures: dict[str, float] = {
        "6_false_alarm_rate": FALSE_ALARM,
        "6_transcripts": sum(audit.count for audit in AUDITS.values()),
    }
    with ProcessPoolExecutor(os.cpu_count()) as workers:
        for name, audit in AUDITS.items():
            figures |= {f"6_{name}_{figure}": number for figure, number in _audited(audit, workers).items()}
    return figures | {"6_seconds": sum(number for figure, number in figures.items() if figure.endswith("_seconds"))}


def _audited(audit: Audit, workers: ProcessPoolExecutor) -> dict[str, float]:
    """The lower bound on epsilon and the ledger's figure, in nats, and what gives a client away."""
    case, began = CASES[audit.case], monotonic()
    pair = case.restless_pair if audit.restless else case.pair
    size = min(CLIENT, audit.count // 2)
    clients = [(way, client) for way in range(2) for client in range(audit.count // 2 // size)]
    heard = list(workers.map(partial(_heard, audit, pair, size), clients))
    ways: tuple[list[Transcript], list[Transcript]] = [], []
    for (way, _), batch in zip(clients, heard, strict=True):
        ways[way].extend(batch.transcripts)
    bound, ledger = lower_bound_from(*ways), float(max(batch.epsilon for batch in heard))
    contradictions = sum(batch.contradictions for batch in heard)
    missing = sum(batch.missing for batch in heard)
    figures: dict[str, float] = {"lower_bound": bound, "ledger": ledger, "seconds": monotonic() - began}
    figures |= {"contradictions": contradictions, "missing": missing}
    if audit.broken:
        figures["caught"] = bound > ledger or contradictions > 0 or missing > 0
    elif not audit.restless:
        figures["share"] = bound / ledger
    return figures


def _heard(audit: Audit, pair: tuple[States, States], size: int, client: tuple[int, int]) -> Heard:
    way, number = client
    with BROKEN[audit.broken]():
        return transcripts(CASES[audit.case].survey, pair[way], size, interrupted=number % INTERRUPTED == 0)


def lower_bound_from(one: Sequence[Transcript], other: Sequence[Transcript]) -> float:
    """The lower bound on epsilon, in nats, from independent transcripts of two ways to live; 0 where there is none."""
    event, turned = _chosen(one[::CHOOSE], other[::CHOOSE])
    first, second = (_counted(event, [each for at, each in enumerate(way) if at % CHOOSE]) for way in (one, other))
    return max(0.0, lower_bound(second, first) if turned else lower_bound(first, second))


def lower_bound(likelier: tuple[int, int], rarer: tuple[int, int]) -> float:
    """ln(p/q), p bounded from below and q from above.

    likelier, rarer: how often an event came, and of how many transcripts, where p and where q is its chance.
    """
    (came, count), (rarely, others) = likelier, rarer
    if came == 0:
        return -inf
    p = betaincinv(came, count - came + 1, FALSE_ALARM / 2)
    q = 1.0 if rarely == others else betaincinv(rarely + 1, others - rarely, 1 - FALSE_ALARM / 2)
    return log(p / q)


def _chosen(one: Sequence[Transcript], other: Sequence[Transcript]) -> tuple[frozenset[Transcript], bool]:
    """The event that gives these transcripts the largest bound, among those that hold what is likeliest one way.

    With it, whether it is the likelier the other way.
    """
    best, bound = (frozenset[Transcript](), False), -inf
    for turned, (way, against) in ((False, (one, other)), (True, (other, one))):
        often, seldom = Counter(way), Counter(against)
        ranked = sorted(often, key=lambda each: (often[each] + 0.5) / (seldom[each] + 0.5), reverse=True)
        came = rarely = 0
        for last, transcript in enumerate(ranked, 1):
            came, rarely = came + often[transcript], rarely + seldom[transcript]
            if (found := lower_bound((came, len(way)), (rarely, len(against)))) > bound:
                best, bound = (frozenset(ranked[:last]), turned), found
    return best


def _counted(event: frozenset[Transcript], told: Collection[Transcript]) -> tuple[int, int]:
    return sum(each in event for each in told), len(told)


_SILENT = -1
"""Stands for a report that is not made."""


def two_symbols() -> AbstractContextManager[None]:
    """Keeps true inputs in the outbox and draws their symbols as it sends: a retry has the id, and another symbol."""

    def keeping(_: Group, __: int, true: int, slots: Memory | None, ___: Coins) -> tuple[int, Memory | None]:
        return true, slots

    def drawing(plan: ReleasePlan, group: int, span: Node, answered: Any, reports: list[Report]) -> bytes:
        tracks, coins = plan.tracks, SystemCoins()
        drawn = [each._replace(symbol=tracks[each.track].randomizer.respond(each.symbol, coins)) for each in reports]
        return encode_upload(plan, group, span, answered, drawn)

    return _patched({_RESPOND: keeping, "changeling_client.outbox.encode_upload": drawing})


def only_on_change() -> AbstractContextManager[None]:
    """Reports nothing where nothing changed."""
    put = outbox.put

    def answering(group: Group, place: int, true: int, slots: Memory | None, coins: Coins) -> tuple[int, Memory | None]:
        return respond(group, place, true, slots, coins) if true else (_SILENT, slots)

    def putting(db: Any, wrapping: Any, survey: Any, answered: Sequence[tuple[Any, Sequence[ClosingAnswer]]]) -> None:
        spoken = [
            (entry, [each._replace(reports=tuple(r for r in each.reports if r.symbol != _SILENT)) for each in answers])
            for entry, answers in answered
        ]
        put(db, wrapping, survey, spoken)

    return _patched({_RESPOND: answering, "changeling_client.outbox.put": putting})


def odds_off() -> AbstractContextManager[None]:
    """Tells the truth with odds that are a fifth too high."""

    def telling(group: Group, place: int, true: int, slots: Memory | None, coins: Coins) -> tuple[int, Memory | None]:
        randomizer: Any = group.tracks[place].randomizer
        odds = Odds(6 * randomizer.odds.favoured, 5 * randomizer.odds.other)
        return replace(randomizer, odds=odds).respond(true, coins), slots

    return _patched({_RESPOND: telling})


def unconstrained() -> AbstractContextManager[None]:
    """Counts mutations, and admits them all."""
    return _patched({"changeling_protocol.questions.AtMost.admits": lambda *_: True})


def slots_reset() -> AbstractContextManager[None]:
    """Forgets after each report of a joint group what the reports before it did."""
    return _patched({"changeling_protocol.plan.SlotState.after": lambda _, group, *__: first_memory(group)})


_RESPOND = "changeling_client.flushing.respond"
BROKEN: Mapping[str | None, Callable[[], AbstractContextManager[None]]] = {
    None: nullcontext,
    "two_symbols": two_symbols,
    "only_on_change": only_on_change,
    "odds_off": odds_off,
    "unconstrained": unconstrained,
    "slots_reset": slots_reset,
}
"""Clients that are broken on purpose, each at one seam of the real one; None is the client as it ships."""


@contextmanager
def _patched(seams: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
    """Puts something else in the places of these names as long as it lasts."""
    with ExitStack() as stack:
        for name, instead in seams.items():
            stack.enter_context(patch(name, instead))
        yield
