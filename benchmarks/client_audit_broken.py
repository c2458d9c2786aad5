"""Clients that are broken on purpose, each at one seam of the real one: what an audit must catch."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
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

_RESPOND = "changeling_client.answering.respond"
_PUT = "changeling_client.outbox.put"
_ENCODE = "changeling_client.outbox.encode_upload"
_ADMITS = "changeling_protocol.constraints.AtMost.admits"
_AFTER = "changeling_protocol.plan.SlotState.after"
_SILENT = -1
"""Stands for a report that is not made."""


def two_symbols() -> AbstractContextManager[None]:
    """Keeps true inputs in the outbox and draws their symbols as it sends: a retry has the id, and another symbol."""

    def keeping(_: Group, __: int, true: int, slots: Memory | None, ___: Coins) -> tuple[int, Memory | None]:
        return true, slots

    def drawing(plan: ReleasePlan, group: int, span: Node, answered: Any, reports: list[Report]) -> bytes:
        tracks, coins = plan.tracks, SystemCoins()
        drawn = [replace(each, symbol=tracks[each.track].randomizer.respond(each.symbol, coins)) for each in reports]
        return encode_upload(plan, group, span, answered, drawn)

    return _patched({_RESPOND: keeping, _ENCODE: drawing})


def only_on_change() -> AbstractContextManager[None]:
    """Reports nothing where nothing changed."""
    put = outbox.put

    def answering(group: Group, place: int, true: int, slots: Memory | None, coins: Coins) -> tuple[int, Memory | None]:
        return respond(group, place, true, slots, coins) if true else (_SILENT, slots)

    def putting(db: Any, wrapping: Any, survey: Any, answered: Sequence[tuple[Any, Sequence[ClosingAnswer]]]) -> None:
        spoken = [
            (entry, [replace(each, reports=tuple(filter(_spoken, each.reports))) for each in answers])
            for entry, answers in answered
        ]
        put(db, wrapping, survey, spoken)

    return _patched({_RESPOND: answering, _PUT: putting})


def _spoken(report: Report) -> bool:
    return report.symbol != _SILENT


def odds_off() -> AbstractContextManager[None]:
    """Tells the truth with odds that are a fifth too high."""

    def telling(group: Group, place: int, true: int, slots: Memory | None, coins: Coins) -> tuple[int, Memory | None]:
        return respond(_eager(group), place, true, slots, coins)

    return _patched({_RESPOND: telling})


def unconstrained() -> AbstractContextManager[None]:
    """Counts mutations, and admits them all."""
    return _patched({_ADMITS: lambda *_: True})


def slots_reset() -> AbstractContextManager[None]:
    """Forgets after each report of a joint group what the reports before it did."""
    return _patched({_AFTER: lambda _, group, *__: first_memory(group)})


BROKEN: Mapping[str | None, Callable[[], AbstractContextManager[None]]] = {
    None: nullcontext,
    "two_symbols": two_symbols,
    "only_on_change": only_on_change,
    "odds_off": odds_off,
    "unconstrained": unconstrained,
    "slots_reset": slots_reset,
}
"""By name; None is the client as it ships."""


def _eager(group: Group) -> Group:
    tracks = []
    for track in group.tracks:
        randomizer: Any = track.randomizer
        odds = Odds(6 * randomizer.odds.favoured, 5 * randomizer.odds.other)
        tracks.append(replace(track, randomizer=replace(randomizer, odds=odds)))
    return replace(group, tracks=tuple(tracks))


@contextmanager
def _patched(seams: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
    """Puts something else in the places of these names as long as it lasts."""
    with ExitStack() as stack:
        for name, instead in seams.items():
            stack.enter_context(patch(name, instead))
        yield
