"""Segments written anew: many small ones as one, and those of which much is deleted without it; then the old files go.

Only what is counted is written anew, by whoever has the turn to fold. A file is doomed before it is written and until
the catalogue names it, so whatever crashes, it is named or deleted.
"""

from collections.abc import Sequence
from itertools import groupby

from changeling_protocol import UnixSeconds
from sqlalchemy import Connection, func, select

from ..segments import place_at
from .catalogue import (
    Segment,
    doom,
    doomed_files,
    forget_doomed,
    in_segments,
    kept_rows,
    replace_segments,
    segments_of,
)
from .database import Transactions
from .opened import Store
from .rolling import SUFFIX, segment_name, write_segment
from .schema import cursors, dropped, segments, streams

TOGETHER = 16
"""So many small segments in a row become one."""
MOST_BYTES = 64 * 2**20
"""The most that is read for one."""
MOST_MADE = 4
"""The most segments that are made at a time: the next fold waits for them."""
OLD_SECONDS = 3600.0
MOST_DROPPED = 0.25
"""A segment of which more counts as deleted is written anew."""


def tidy(store: Store, writing: Transactions) -> int:
    """Write anew some of what is due, and delete files that are doomed; returns how many segments were replaced.

    writing: of the turn to fold. Raises Unwritable or SegmentLost.
    """
    with store.reading() as connection:
        if not in_segments(connection):
            return 0
    remove_doomed(store, writing)
    with store.reading() as connection:
        due = _due(connection)[:MOST_MADE]
    for each in due:
        _compact(store, writing, each)
    if due:
        remove_doomed(store, writing)
    return sum(map(len, due))


def remove_doomed(store: Store, writing: Transactions) -> None:
    """Delete the files that are doomed.

    Whoever has the turn to fold dooms a file before it writes it, until the catalogue names it. So what is doomed is
    read in a transaction of the turn: a process that has lost its turn gets none, and deletes nothing of its successor.
    """
    with store.reading() as connection:
        if not doomed_files(connection):
            return
    with writing() as connection:
        files = doomed_files(connection)
    for place, name in files:
        place_at(place).remove(name)
    with writing() as connection:
        forget_doomed(connection, files)


def sweep(store: Store, now: UnixSeconds) -> int:
    """Delete files of the store's streams that no catalogue names and that are old; returns how many.

    now: Unix seconds. A stream with a frontier is left alone: its server may not have been able to name for hours what
    it wrote. Any other names it within seconds.
    """
    at_rest = streams.c.place.is_not(None), streams.c.frontier.is_(None)
    with store.reading() as connection:
        places = connection.execute(select(streams.c.place, streams.c.files).where(*at_rest)).all()
    ours = {files for _, files in places}
    lying = [  # each place is listed once: an object store is paid for that
        (place, each)
        for place in sorted({place for place, _ in places})
        for each in place_at(place).kept("")
        if each.name.partition("-")[0] in ours
    ]
    with store.reading() as connection:  # after the files were listed, so that all that were named by then are known
        named = {each.name for each in segments_of(connection)} | {name for _, name in doomed_files(connection)}
    swept = 0
    for place, each in lying:
        is_segment = each.name.endswith((SUFFIX, f"{SUFFIX}.part"))
        if is_segment and each.name not in named and now - each.written > OLD_SECONDS:
            place_at(place).remove(each.name)
            swept += 1
    return swept


def _due(connection: Connection) -> list[list[Segment]]:
    """Segments that lie behind one another and are better as one, or one that is better without what is gone."""
    counted = segments.c.last <= cursors.c.position
    small = select(segments.c.stream).where(segments.c.bytes <= MOST_BYTES // 4)
    many = small.group_by(segments.c.stream).having(func.count() >= TOGETHER)
    due = []
    in_order = segments_of(connection, counted, segments.c.stream.in_(many))
    for _, alike in groupby(in_order, key=lambda each: (each.stream, each.cut)):
        due += _together([*alike])
    taken = {each for some in due for each in some}
    thinner = segments_of(connection, counted, ~segments.c.cut, segments.c.stream.in_(select(dropped.c.stream)))
    for each in thinner:
        gone = dropped.c.stream == each.stream, dropped.c.position.between(each.first, each.last)
        count = connection.execute(select(func.count()).select_from(dropped).where(*gone)).scalar_one()
        if each not in taken and count > MOST_DROPPED * (each.last - each.first + 1):
            due.append([each])
    return due


def _together(in_order: list[Segment]) -> list[list[Segment]]:
    """Runs of TOGETHER segments none of which is much of the whole: so each is written anew a few times only."""
    runs, at = [], 0
    while at + TOGETHER <= len(in_order):
        run = in_order[at : at + TOGETHER]
        size = sum(each.size for each in run)
        if size <= MOST_BYTES and 4 * max(each.size for each in run) <= size:
            runs.append(run)
            at += TOGETHER
        else:
            at += 1
    return runs


def _compact(store: Store, writing: Transactions, old: Sequence[Segment]) -> None:
    """Put one segment into the place of these."""
    with store.reading() as connection:
        rows = [row for each in old for row in kept_rows(connection, each)]
        files = connection.execute(select(streams.c.files).where(streams.c.id == old[0].stream)).scalar_one()
    new = None
    if rows:
        name = segment_name(files, old[0].first)
        with writing() as connection:
            doom(connection, old[0].place, name)
        written = write_segment(place_at(old[0].place), old[0].stream, name, rows)
        earliest, latest = min(each.earliest for each in old), max(each.latest for each in old)
        new = old[0]._replace(last=old[-1].last, earliest=earliest, latest=latest, name=name, size=written.size)
    with writing() as connection:
        replace_segments(connection, old, new)
