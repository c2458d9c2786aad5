"""Measure 1: one log, through SQLite, PostgreSQL and segments, comes to the same tallies, attendance and refusals.

To the byte. In the log are duplicates within and between streams, late, early, future, malformed and foreign reports.
"""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import NamedTuple

from changeling_aggregator.fold import check, fold
from changeling_aggregator.store import Store
from changeling_aggregator.testing import SegmentedStore, counted_rows
from changeling_protocol import Calendar, UnixMilliseconds, UnixSeconds

from tests.aggregator.buckets import new_bucket, object_store
from tests.aggregator.devices import Log, body, envelope, report
from tests.postgres import PostgreSQL
from tests.protocol.examples import survey

START, PERIOD, PERIODS, GRACE = 1_800_000_000, 60, 8, 300
STREAMS, APPENDS, BATCH = 3, 800, 300


class Appended(NamedTuple):
    """What a server appends at once. at: Unix seconds."""

    stream: int
    at: float
    bodies: list[bytes]


class Counted(NamedTuple):
    """Every row of three tables, in order; and how many nodes and closings differ when the log is folded again."""

    tallies: list[tuple[object, ...]]
    attendance: list[tuple[object, ...]]
    refusals: list[tuple[object, ...]]
    differences: int


def measure() -> dict[str, float | None]:
    with tempfile.TemporaryDirectory() as folder, PostgreSQL() as postgresql, object_store() as endpoint:
        asked = survey(calendar=Calendar(START, PERIOD, PERIODS), grace=GRACE, skew=5)
        source = Log.of(Store.open(Path(folder) / "source.db"), asked)
        lots = [*hostile(source, Random(14))]  # noqa: S311
        stores: dict[str, tuple[str, str | None]] = {
            "sqlite": (f"{folder}/rows.db", None),
            "postgresql": (postgresql.new(), None),
            "folder": (f"{folder}/folder.db", f"{folder}/segments"),
            "postgresql_folder": (postgresql.new(), f"{folder}/others"),
            "bucket": (f"{folder}/bucket.db", new_bucket(endpoint)),
        }
        found = {name: counted(source, lots, *where) for name, where in stores.items()}
        source.store.close()
    rows = found["sqlite"]
    figures: dict[str, float | None] = {f"1_{name}_is_the_same": each[:3] == rows[:3] for name, each in found.items()}
    figures["1_differences_folded_again"] = sum(each.differences for each in found.values())
    return figures | {f"1_rows_of_{name}": len(getattr(rows, name)) for name in ("tallies", "attendance", "refusals")}


def hostile(source: Log, chance: Random) -> Iterator[Appended]:
    """What devices send, and what others do, in order of arrival."""
    foreign = replace(source.survey, question="Whose is this?")
    sent: list[bytes] = []
    for at in range(APPENDS):
        now = START + at * (PERIOD * PERIODS + GRACE) / APPENDS
        standing = chance.choice((1, 1, 2, 3, 9))
        said = report(chance.randint(1, PERIODS), chance.randrange(14), id_=chance.randbytes(16), standing=standing)
        asked = foreign if chance.random() < 0.05 else source.survey
        made: bytes = envelope(asked, source.key, [said])
        kind = chance.random()
        if kind < 0.2 and sent:
            made = chance.choice(sent)
        elif kind < 0.25:
            made = made[:-9] + chance.randbytes(9)
        elif kind < 0.3:
            made = chance.randbytes(chance.randrange(90, 200))
        sent.append(made)
        yield Appended(chance.randrange(STREAMS), now, [body(made, made), body(made)][: chance.randint(1, 2)])


def counted(source: Log, lots: Sequence[Appended], place: str, segments: str | None) -> Counted:
    """What a new store has counted of this, in several batches. segments: where its log lies, if not in itself."""
    store = Store.open(place)
    if segments is not None:
        store.close()
        store = SegmentedStore.open(place)
        store.segments = segments
    with source.store.view() as view, store.transaction() as writing:
        writing.take_surveys(view)
        writing.take_keys(view)
    streams = [store.open_stream(source.survey.id) for _ in range(STREAMS)]
    for each in lots:
        store.append(streams[each.stream], each.bodies, UnixMilliseconds(int(each.at * 1000)))
    fold(store, UnixSeconds(lots[-1].at), BATCH, closing=False)
    rows = [*counted_rows(store).values()]
    differences = len(check(store))
    with store.view() as view:
        assert (view.segment_count() > 0) == (segments is not None)  # noqa: S101
    store.close()
    return Counted(rows[0], rows[1], rows[2], differences)
