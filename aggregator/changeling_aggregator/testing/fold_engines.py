"""The contract of a fold engine: what it counts is, to the byte, what a reference counts row by row.

The reference has nothing of the fold's: it reads each upload with msgpack alone, and is slow. Both count a log with all
in it that a fold may meet, made from a seed: of honest clients, and of some that send anything.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from secrets import token_hex
from typing import Any, TypeAlias

import msgpack
import numpy as np
import pytest
from changeling_protocol import (
    CLOSING_BYTES,
    HEAD_BYTES,
    MOST_PERIODS,
    SEAL_BYTES,
    AtMost,
    Calendar,
    CannotOpen,
    Closing,
    Group,
    KaryResponse,
    MalformedBytes,
    MutationSpace,
    Node,
    Odds,
    Refusal,
    ReleasePlan,
    Report,
    SealingKey,
    SignedSubset,
    Standing,
    StateSpace,
    StratumNumber,
    Survey,
    SurveyId,
    Track,
    UnixMilliseconds,
    UnixSeconds,
    closings,
    column_bytes,
    encode,
    encode_upload,
    head_of,
    open_envelope,
    seal,
    symbol_bytes,
)
from changeling_protocol.wire import decode_upload_request
from changeling_statistics import counterpart_of
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from ..fold import FoldEngine, FoldReport, SeenIds, fold
from ..fold.folding import BATCH_REQUESTS, batches, count_batches
from ..opening import open_requests
from ..store import KeptTime, LoggedRequest, Store, StoredSurvey
from .stores import AUTHORITY, append_segments, counted_rows, publish_new_key

Append: TypeAlias = Callable[[Sequence[bytes], UnixMilliseconds], None]
"""Puts requests at the end of a stream, at a time in Unix milliseconds."""
START, PERIOD, PERIODS, GRACE = 1_700_000_000, 60, 8, 200
ENDS = START + PERIOD * PERIODS
AFTER = UnixSeconds(ENDS + 3 * GRACE)
"""When nothing of the log is to come any more, in Unix seconds."""

_CHANGES, _STATES = KaryResponse(MutationSpace(3), Odds(9, 2)), KaryResponse(StateSpace(3), Odds(4, 1))
_SUBSETS = SignedSubset(MutationSpace(3), Odds(9, 2), spoken=Fraction(1, 2))
PLANS = {
    "a panel of random nodes, changes, and both": ReleasePlan(
        (
            Group((Track(1, _STATES, 0, 8, reported=2),), share=3),
            Group((Track(2, _CHANGES, 0, 8),), share=2),
            Group((Track(1, _STATES, 0, 1), Track(1, _CHANGES, 1, 8))),
        )
    ),
    "three widths": ReleasePlan((Group(tuple(Track(width, _SUBSETS, 0, 8) for width in (1, 2, 4))),)),
    "periods without a closing": ReleasePlan(
        (Group((Track(3, _CHANGES, 1, 8),)), Group((Track(2, _STATES, 5, 8), Track(4, _SUBSETS, 0, 8))))
    ),
}


def survey_of(plan: ReleasePlan, question: str) -> Survey:
    """A survey of eight minutes with this plan."""
    return Survey.at_cost(
        question=question,
        answers=("tea", "coffee", "neither"),
        calendar=Calendar(START, PERIOD, PERIODS),
        constraint=AtMost(3),
        plan=plan,
        closed=False,
        skew=5,
        spread=10,
        grace=GRACE,
        minimum=1,
    )


SURVEYS: Sequence[Survey] = [survey_of(plan, f"{name}?") for name, plan in PLANS.items()]


def honest(plan: ReleasePlan, chance: random.Random) -> tuple[bytes, list[bytes]]:
    """An upload over some periods of eight, and the ids in it."""
    group, start = chance.randrange(len(plan.groups)), chance.randrange(8)
    span = Node(start, chance.randrange(start + 1, 9))
    answered = [
        Closing(period, chance.randbytes(16), Standing(chance.randrange(3)), StratumNumber(0))
        for period in closings(plan, span.start, span.end)
    ]
    reports = [
        Report(number, at, chance.randrange(track.randomizer.symbols))
        for number, track in plan.numbered(group)
        for at in track.node_numbers()
        if span.start < track.node(at).end <= span.end
    ]
    return encode_upload(plan, group, span, answered, reports), [closing.id for closing in answered]


def hostile(plan: ReleasePlan, seen: Sequence[bytes], chance: random.Random) -> bytes:
    """Columns of the right lengths with anything in them, ids that others have used before too; some of it cut off."""
    group, start = chance.randrange(len(plan.groups)), chance.choice([0, 0, 1, 7, 8, 100, 2**16])
    span = Node(start, start + chance.choice([1, 2, 8, 63, 64]))
    rows, *columns = column_bytes(plan, group, span)
    ids = [chance.choice([bytes(16), b"\xff" * 16, chance.randbytes(16), *seen]) for _ in range(rows // CLOSING_BYTES)]
    standings = bytes(chance.choice([0, 1, 2, 3, 4, 255]) for _ in ids)
    strata = b"".join(chance.choice([0, 0, 1, 65535]).to_bytes(2) for _ in ids)
    symbols = [chance.choice([bytes(n), b"\xff" * n, chance.randbytes(n)]) for n in columns]
    claimed = group if chance.random() < 0.8 else chance.choice([-1, len(plan.groups), 2**63, 2**64 - 1])
    raw: bytes = msgpack.packb([claimed, span.start, span.end, b"".join([*ids, standings, strata]), *symbols])
    return raw[: chance.randrange(len(raw))] if chance.random() < 0.1 else raw + bytes(chance.randrange(3))


@dataclass(frozen=True)
class HostileLog:
    """Requests by turns, each with its arrival in Unix seconds and one of three streams: the same for all stores."""

    requests: Sequence[tuple[float, int, bytes]]

    @classmethod
    def made(cls, key: SealingKey, seed: int = 3, requests: int = 60) -> "HostileLog":
        """Early, late and repeated uploads, of three surveys and of one that nobody knows, to known and unknown keys;
        and rubbish. Each request is of one survey, as the log holds them.
        """
        chance = random.Random(seed)
        stranger = survey_of(PLANS["three widths"], "unknown?")
        public = X25519PrivateKey.from_private_bytes(bytes(range(32))).public_key().public_bytes_raw()
        lost = SealingKey(public, 0, 2**40)
        seen: dict[SurveyId, list[bytes]] = {each.id: [] for each in SURVEYS}
        made: list[tuple[float, int, bytes]] = []
        at = START - 100.0
        for number in range(requests):
            at += chance.random() * 2 * (ENDS + GRACE - START) / requests
            asked = chance.choice(SURVEYS)
            plaintexts = []
            for _ in range(chance.choice([1, 1, 3])):
                plaintext, ids = honest(asked.plan, chance)
                if chance.random() < 0.4:
                    plaintext = hostile(asked.plan, seen[asked.id], chance) or b"?"
                else:
                    seen[asked.id] += ids
                plaintexts.append(plaintext)
            of, to = (stranger if number % 7 == 3 else asked), (lost if number % 9 == 4 else key)
            envelopes = [seal(each, of.id, to) for each in plaintexts]
            if number % 11 == 5:
                envelopes = [chance.randbytes(200)[: 200 if number % 2 else 60]]
            again = bool(made) and chance.random() < 0.2
            request = chance.choice(made)[2] if again else encode({"envelopes": envelopes})
            made.append((at, chance.randrange(3), request))
        return cls(made)

    def append_to(self, streams: Sequence[Append], first: int = 0, last: int | None = None) -> None:
        """Append some of it. streams: what appends to each of three."""
        for at, stream, request in self.requests[first:last]:
            streams[stream]([request], UnixMilliseconds(int(at * 1000)))


def prepared(store: Store, seed: int = 3, place: str | None = None) -> tuple[HostileLog, list[Append]]:
    """Publish surveys and a key in a store; a log for it, and what appends to three streams.

    place: where their requests lie in files; None for the database.
    """
    with store.transaction() as writing:
        for each in SURVEYS:
            writing.add_survey(each.id, each.signed_by(AUTHORITY), public=True)
        key = publish_new_key(writing, 0, 2**40)
        writing.keep_time(KeptTime(UnixMilliseconds(int(AFTER * 1000)), False))  # so that no arrival is doubted
    return HostileLog.made(key, seed), [appender(store, place) for _ in range(3)]


def appender(store: Store, place: str | None = None) -> Append:
    """A new stream; gives what appends to it. place: where its requests lie in files; None for the database."""
    number = store.open_stream(None, place, None if place is None else token_hex(8))
    append = store.append if place is None else partial(append_segments, store)
    return lambda bodies, now: append({number: bodies}, now)


Rows = list[tuple[Any, ...]]
_MOST_SPANNED = 64
_STANDINGS = (1, 2, 3)


@dataclass
class Reference:
    """The counts of one survey. symbols: how often each was reported, by track, node and stratum. attendance: how many
    were heard, were new, and missed before, by group, period and stratum. refused: by reason.
    """

    survey: Survey
    symbols: dict[tuple[int, int, int], Counter[int]] = field(default_factory=dict)
    attendance: dict[tuple[int, int, int], list[int]] = field(default_factory=dict)
    refused: Counter[Refusal] = field(default_factory=Counter)
    _seen: set[tuple[int, bytes]] = field(default_factory=set)

    def add(self, plaintext: bytes, arrival: float) -> None:
        """Count an upload. arrival: Unix seconds."""
        upload = self._read(plaintext)
        if upload is None:
            self.refused[Refusal.MALFORMED] += 1
            return
        group, start, end, rows, *columns = upload
        answered, strata = self._add_closings(group, _closings(self.survey, start, end), rows, arrival)
        for (number, track), column in zip(self.survey.plan.numbered(group), columns, strict=True):
            width = symbol_bytes(track.randomizer)
            for at, node in enumerate(_nodes(track, start, end)):
                written = int.from_bytes(column[at * width : at * width + width])
                period = track.first + node * track.width
                if written == 0:
                    continue
                if period not in answered:
                    self.refused[Refusal.MALFORMED] += 1
                elif period in strata and written > track.randomizer.symbols:
                    self.refused[Refusal.SYMBOL_OUT_OF_RANGE] += 1
                elif period in strata:
                    self.symbols.setdefault((number, node, strata[period]), Counter())[written - 1] += 1

    def _read(self, plaintext: bytes) -> list[Any] | None:
        """The items of an upload; None where it is none of the survey."""
        unpacker = msgpack.Unpacker(raw=False, strict_map_key=True)
        unpacker.feed(plaintext)
        try:
            items = unpacker.unpack()
        except (ValueError, msgpack.UnpackException, RecursionError):
            return None
        if any(plaintext[unpacker.tell() :]) or not isinstance(items, list) or len(items) < 4:
            return None
        if [type(each) for each in items] != [int] * 3 + [bytes] * (len(items) - 3):
            return None
        group, start, end, rows, *columns = items
        if not (0 <= start < end <= MOST_PERIODS and end - start <= _MOST_SPANNED):
            return None
        if not 0 <= group < len(self.survey.plan.groups):
            return None
        tracks = self.survey.plan.groups[group].tracks
        lengths = [len([*_nodes(track, start, end)]) * symbol_bytes(track.randomizer) for track in tracks]
        fits = len(rows) == 19 * len(_closings(self.survey, start, end)) and [*map(len, columns)] == lengths
        return items if fits else None

    def _add_closings(
        self, group: int, periods: list[int], rows: bytes, arrival: float
    ) -> tuple[set[int], dict[int, int]]:
        """The periods that are answered, and the strata of those that count."""
        answered, strata, n = set[int](), dict[int, int](), len(periods)
        for at, period in enumerate(periods):
            id_, standing = rows[16 * at : 16 * at + 16], rows[16 * n + at]
            stratum = int.from_bytes(rows[17 * n + 2 * at : 17 * n + 2 * at + 2])
            if standing == 0:
                continue
            answered.add(period)
            refusal = self._refusal(period, standing, stratum, arrival)
            if refusal is None and (period, id_) in self._seen:
                refusal = Refusal.DUPLICATE
            if refusal is not None:
                self.refused[refusal] += 1
                continue
            self._seen.add((period, id_))
            strata[period] = stratum
            heard = self.attendance.setdefault((group, period, stratum), [0, 0, 0])
            for place, counts in enumerate((True, standing == 2, standing == 3)):
                heard[place] += counts
        return answered, strata

    def _refusal(self, period: int, standing: int, stratum: int, arrival: float) -> Refusal | None:
        survey = self.survey
        close = survey.calendar.start + period * survey.calendar.period
        if standing not in _STANDINGS:
            return Refusal.MALFORMED
        if stratum >= survey.strata:
            return Refusal.UNKNOWN_STRATUM
        if period > survey.calendar.periods:
            return Refusal.CLOSED
        if close - survey.calendar.period > arrival + survey.skew:
            return Refusal.FUTURE
        return Refusal.LATE if arrival > close + survey.grace else None

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """The tallies and the attendance, as rows of the store's table."""
        for (group, period, stratum), (heard, *slots) in self.attendance.items():
            yield self.survey.id, -1 - group, period, stratum, heard, np.array(slots).astype("<i8").tobytes()
        for (track, node, stratum), symbols in self.symbols.items():
            reported = np.array([symbol for symbol, times in symbols.items() for _ in range(times)], np.uint64)
            counterpart = counterpart_of(self.survey.plan.tracks[track].randomizer)
            (tally,) = counterpart.tallies(reported, np.zeros(len(reported), np.int64), 1)
            yield self.survey.id, track, node, stratum, tally.reports, tally.slots.astype("<i8").tobytes()


def _nodes(track: Track, start: int, end: int) -> Iterator[int]:
    """The numbers of the track's nodes that end in (start, end]."""
    return (number for number in range(1, track.count + 1) if start < track.first + number * track.width <= end)


def _closings(survey: Survey, start: int, end: int) -> list[int]:
    return sorted({t.first + number * t.width for t in survey.plan.tracks for number in _nodes(t, start, end)})


def reference_rows(
    requests: Iterable[LoggedRequest],
    surveys: Mapping[SurveyId, StoredSurvey],
    keys: Mapping[bytes, X25519PrivateKey],
) -> dict[str, Rows]:
    """The counts of these requests, as `counted_rows` gives it.

    requests: all that there ever were, with the arrivals that count, in any order. None is of a survey that was ended.
    """
    found = {id_: Reference(each.survey) for id_, each in surveys.items()}
    refused: Counter[tuple[bytes, str]] = Counter()
    for request in sorted(requests):
        try:
            envelopes = decode_upload_request(request.body)
        except (MalformedBytes, ValueError):
            continue
        for envelope in envelopes:
            if len(envelope) <= HEAD_BYTES + SEAL_BYTES:
                refused[b"", Refusal.MALFORMED.value] += 1
                continue
            head = head_of(envelope)
            try:
                if head.survey not in surveys or head.key not in keys:
                    raise CannotOpen
                found[head.survey].add(open_envelope(envelope, keys[head.key]), request.arrival / 1000)
            except CannotOpen:
                refused[head.survey, Refusal.UNOPENABLE.value] += 1
    refused.update(
        {(id_, reason.value): times for id_, each in found.items() for reason, times in each.refused.items()}
    )
    return {
        "tallies": sorted(row for each in found.values() for row in each.rows()),
        "refusals": sorted((*key, times) for key, times in refused.items()),
    }


def fold_out_of_turn(store: Store, most: int = BATCH_REQUESTS) -> FoldReport:
    """Count the next requests as a folder does that lost its turn and has not noticed. Raises Overtaken.

    most: so many at most.
    """
    until = UnixMilliseconds(2**62)
    for report in count_batches(store, store, batches(store, most, open_requests, 1, until, lambda: False), SeenIds()):
        return report
    return FoldReport()


class FoldEngineContract:
    """Every engine's tests inherit this, and give as fixtures an empty `store`, and the `engine` that folds it."""

    @pytest.fixture
    def place(self) -> str | None:
        """Where the log lies in files, a folder or a bucket's URL; None for the store's database."""
        return None

    def folded(self, engine: FoldEngine, now: UnixSeconds = AFTER, *, closing: bool = False) -> FoldReport:
        """Fold once."""
        engine.await_start()
        return engine.fold(now, closing=closing)

    def test_it_counts_what_the_reference_counts(self, store: Store, engine: FoldEngine, place: str | None) -> None:
        """Tallies, attendance and refusals to the byte: with duplicates, late, early, malformed and foreign uploads.

        Nothing while another has the turn to fold, which is one for all engines, and nothing where nothing is new.
        """
        assert self.folded(engine) == FoldReport()
        log, streams = prepared(store, place=place)
        log.append_to(streams)
        with store.view() as view:
            expected = reference_rows(view.kept_requests(), view.surveys(), view.private_keys())
        with store.turn_to_fold() as turn:
            assert turn is not None
            assert self.folded(engine).stood_by
        done = self.folded(engine)
        assert counted_rows(store) == expected
        assert {row[1] for row in expected["refusals"]} >= {"duplicate", "late", "future", "malformed", "unopenable"}
        assert (done.requests, done.behind, done.stood_by) == (len(log.requests), False, False)
        assert self.folded(engine).requests == 0
        assert counted_rows(store) == expected

    def test_it_sees_the_ids_that_another_engine_counted(
        self, store: Store, engine: FoldEngine, place: str | None
    ) -> None:
        """And the other way round: whoever folds which part of the log, each closing counts once."""
        log, streams = prepared(store, place=place)
        for turn, first in enumerate(range(0, 60, 15)):
            log.append_to(streams, first, first + 15)
            if turn % 2:
                self.folded(engine)
            else:
                fold(store, AFTER, 7, closing=False)
        log.append_to(streams, 60)
        self.folded(engine)
        requests = [
            LoggedRequest(UnixMilliseconds(int(at * 1000)), number, number, request)
            for number, (at, _, request) in enumerate(log.requests)
        ]
        with store.view() as view:
            assert counted_rows(store) == reference_rows(requests, view.surveys(), view.private_keys())

    def test_what_is_over_is_sealed_and_forgotten(self, store: Store, engine: FoldEngine, place: str | None) -> None:
        """Closings whose grace is over are sealed, and their ids go; what comes for them later is late."""
        log, streams = prepared(store, place=place)
        log.append_to(streams, 0, 30)
        self.folded(engine, closing=True)
        before = counted_rows(store)["tallies"]
        with store.view() as view:
            assert {each.sealed for each in view.surveys().values()} == {8}
        log.append_to(streams, 0, 10)
        assert self.folded(engine, closing=True).reports == 0
        assert counted_rows(store)["tallies"] == before
        with store.view() as view:
            assert view.runs() == {}
