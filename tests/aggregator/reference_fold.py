"""What uploads count for, worked out row by row with nothing of the fold's: slow, and the measure of it."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgpack
from changeling_protocol import MOST_PERIODS, Refusal, Survey, Track, symbol_bytes

MOST_SPANNED = 64
KNOWN_STANDINGS = (1, 2, 3)


@dataclass
class Reference:
    """symbols: how often each was reported, by track, node and stratum. attendance: how many were heard, were new, and
    missed before, by group, period and stratum. refused: by reason.
    """

    symbols: dict[tuple[int, int, int], Counter[int]] = field(default_factory=dict)
    attendance: dict[tuple[int, int, int], list[int]] = field(default_factory=dict)
    refused: Counter[Refusal] = field(default_factory=Counter)


def reference(survey: Survey, plaintexts: Iterable[bytes], arrival: float) -> Reference:
    """Of these uploads, in this order, all of which arrived at the same Unix time, in seconds."""
    found, seen = Reference(), set[tuple[int, bytes]]()
    for plaintext in plaintexts:
        upload = _read(survey, plaintext)
        if upload is None:
            found.refused[Refusal.MALFORMED] += 1
        else:
            _add(found, survey, upload, seen, arrival)
    return found


def _read(survey: Survey, plaintext: bytes) -> list[Any] | None:
    """The items of an upload; None where it is none of the survey."""
    unpacker = msgpack.Unpacker(raw=False, strict_map_key=True)
    unpacker.feed(plaintext)
    try:
        items = unpacker.unpack()
    except (ValueError, msgpack.UnpackException, RecursionError):
        return None
    if any(plaintext[unpacker.tell() :]) or not isinstance(items, list) or len(items) < 4:
        return None
    group, start, end, rows, *columns = items
    if any(type(each) is not int for each in (group, start, end)) or any(
        type(e) is not bytes for e in (rows, *columns)
    ):
        return None
    if not (0 <= start < end <= MOST_PERIODS and end - start <= MOST_SPANNED and 0 <= group < len(survey.plan.groups)):
        return None
    tracks = survey.plan.groups[group].tracks
    lengths = [len([*_nodes(track, start, end)]) * symbol_bytes(track.randomizer) for track in tracks]
    if len(rows) != 19 * len(_closings(survey, start, end)) or [*map(len, columns)] != lengths:
        return None
    return items


def _nodes(track: Track, start: int, end: int) -> Iterator[int]:
    """The numbers of the track's nodes that end in (start, end]."""
    return (number for number in range(1, track.count + 1) if start < track.first + number * track.width <= end)


def _closings(survey: Survey, start: int, end: int) -> list[int]:
    return sorted({t.first + number * t.width for t in survey.plan.tracks for number in _nodes(t, start, end)})


def _add(found: Reference, survey: Survey, items: list[Any], seen: set[tuple[int, bytes]], arrival: float) -> None:
    group, start, end, rows, *columns = items
    periods = _closings(survey, start, end)
    answered, strata = set(), {}
    for at, period in enumerate(periods):
        id_, n = rows[16 * at : 16 * at + 16], len(periods)
        standing, stratum = rows[16 * n + at], int.from_bytes(rows[17 * n + 2 * at : 17 * n + 2 * at + 2])
        if standing == 0:
            continue
        answered.add(period)
        refusal = _refusal(survey, period, standing, stratum, arrival)
        if refusal is None and (period, id_) in seen:
            refusal = Refusal.DUPLICATE
        if refusal is not None:
            found.refused[refusal] += 1
            continue
        seen.add((period, id_))
        strata[period] = stratum
        heard = found.attendance.setdefault((group, period, stratum), [0, 0, 0])
        for place, counts in enumerate((True, standing == 2, standing == 3)):
            heard[place] += counts
    for (number, track), column in zip(survey.plan.numbered(group), columns, strict=True):
        width = symbol_bytes(track.randomizer)
        for at, node in enumerate(_nodes(track, start, end)):
            written = int.from_bytes(column[at * width : at * width + width])
            period = track.first + node * track.width
            if written == 0:
                continue
            if period not in answered:
                found.refused[Refusal.MALFORMED] += 1
            elif period in strata and written > track.randomizer.symbols:
                found.refused[Refusal.SYMBOL_OUT_OF_RANGE] += 1
            elif period in strata:
                found.symbols.setdefault((number, node, strata[period]), Counter())[written - 1] += 1


def _refusal(survey: Survey, period: int, standing: int, stratum: int, arrival: float) -> Refusal | None:
    close = survey.calendar.start + period * survey.calendar.period
    if standing not in KNOWN_STANDINGS:
        return Refusal.MALFORMED
    if stratum >= survey.strata:
        return Refusal.UNKNOWN_STRATUM
    if period > survey.calendar.periods:
        return Refusal.CLOSED
    if close - survey.calendar.period > arrival + survey.skew:
        return Refusal.FUTURE
    return Refusal.LATE if arrival > close + survey.grace else None
