"""Transactions as objects: what can be read of one state of a store, what can be written, and the turn to fold.

No caller meets a connection of the database: values go in, values come out.

In its turn, which one process at a time has, the fold also puts files in order: many small segments are written anew as
one. A file is in the catalogue, as one to be deleted, before it is written and until it is named. What is to be deleted
is read in a transaction of the turn: a process that has lost its turn gets none, and deletes nothing of its successor.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import groupby
from typing import TypeAlias

from changeling_protocol import UnixSeconds

from ..errors import Unwritable
from ..segments import Place, place_at
from .at_rest import AtRest
from .counted import ReadCounts
from .database import Transactions
from .editions import ReadEditions, WriteEditions
from .files import RUN_ENDS, SEGMENT_ENDS, FileKind, Segment, rows_of, segment_name, written_segment
from .log import ReadLog, WriteLog
from .registry import ReadRegistry, WriteRegistry
from .runs import ReadRuns, WriteRuns
from .sealing_keys import ReadKeys, WriteKeys

TOGETHER = 16
"""So many small segments in a row become one."""
MOST_BYTES = 64 * 2**20
"""The most that is read for one."""
MOST_MADE = 4
"""The most segments that are made at a time: the next fold waits for them."""
OLD_SECONDS = 3600.0


class View(ReadRegistry, ReadKeys, ReadEditions, ReadLog, ReadCounts, ReadRuns):
    """One state of a store, to read: what others commit meanwhile is not seen."""


class Transaction(WriteRegistry, WriteKeys, WriteEditions, WriteLog, WriteRuns, View):
    """A transaction that may write: whole and on disk when it ends, and nothing of it where it raises."""


Views: TypeAlias = Callable[[], AbstractContextManager[View]]


class Turn:
    """The turn of this process to fold; what is written in it is lost once another process has it."""

    def __init__(self, view: Views, transactions: Transactions, at_rest: AtRest) -> None:
        self._view, self._transactions, self._at_rest = view, transactions, at_rest

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """A transaction of the turn. Raises Overtaken, or what the database raises, once the turn is lost."""
        with self._transactions() as connection:
            yield Transaction(connection, self._at_rest)

    def compact(self) -> int:
        """Write some small segments anew as larger ones, and delete garbage; returns how many it replaced.

        Raises Unwritable or SegmentLost.
        """
        with self._view() as view:
            if not view.streams_in_files():
                return 0
            due = _due(view.compactable_segments(MOST_BYTES // 4, TOGETHER))[:MOST_MADE]
        self._delete_garbage()
        for each in due:
            self._compact(each)
        if due:
            self._delete_garbage()
        return sum(map(len, due))

    def sweep(self, now: UnixSeconds) -> int:
        """Delete old files of the store's streams that a killed server wrote and never named; returns how many.

        now: Unix seconds. A server names what it wrote within seconds.
        """
        with self._view() as view:
            streams = view.streams_in_files()
        prefixes = {prefix for _, prefix in streams}
        present = [  # each place is listed once: an object store is paid for that
            (place, each)
            for place in sorted({place for place, _ in streams})
            for each in place_at(place).list("")
            if each.name.partition("-")[0] in prefixes and each.name.endswith((SEGMENT_ENDS, f"{SEGMENT_ENDS}.part"))
        ]
        with self._view() as view:  # after the files were listed, so that all that were named by then are known
            named = {each.name for each in view.segments()} | {name for _, name in view.garbage()}
        unnamed = [at for at in present if at[1].name not in named and now - at[1].written > OLD_SECONDS]
        for place, each in unnamed:
            place_at(place).delete(each.name)
        return len(unnamed)

    def sweep_runs(self, last: str | None = None) -> None:
        """Delete the files of all runs beyond this machine, but for those with ids that count.

        A place that cannot be reached is swept another time: that is no reason not to count a run.
        last: the run that has just ended, if one has. Other runs that have no files left are then forgotten; this one
        is not, as a task of it that was given up may still write.
        """
        with self._view() as view:
            begun = sorted(view.garbage(FileKind.RUN))
        present: dict[tuple[str, str], list[str]] = {}
        for place, runs in groupby(begun, key=lambda run: run[0]):
            starts = [start for _, start in runs]
            with suppress(Unwritable):
                names = [each.name for each in place_at(place).list(*starts)]
                present |= {(place, start): [name for name in names if name.startswith(start)] for start in starts}
        with self.transaction() as writing:
            counting = {each.name for each in writing.id_files()}
            if last is not None:
                empty = [run for run, names in present.items() if not names]
                writing.forget_files([run for run in empty if run[1] != f"{last}{RUN_ENDS}"])
        for (place, _), names in present.items():
            _delete(place_at(place), names, counting)

    def remove_run(self, place: str, run: str) -> None:
        """Delete the files of a run that has failed."""
        with self._view() as view:
            counting = {each.name for each in view.id_files()}
        at = place_at(place)
        with suppress(Unwritable):
            _delete(at, [each.name for each in at.list(f"{run}{RUN_ENDS}")], counting)

    def _delete_garbage(self) -> None:
        with self._view() as view:
            if not view.garbage():
                return
        with self.transaction() as writing:
            garbage = writing.garbage()
        for place, name in garbage:
            place_at(place).delete(name)
        with self.transaction() as writing:
            writing.forget_files(garbage)

    def _compact(self, old: list[Segment]) -> None:
        """Put one segment into the place of these."""
        rows = [row for each in old for row in rows_of(each)]
        name = segment_name(old[0].name.partition("-")[0], old[0].first)
        with self.transaction() as writing:
            writing.mark_garbage(old[0].place, name)
        surveys = {survey for each in old for survey in each.survey_ids} if all(each.surveys for each in old) else ()
        new = written_segment(place_at(old[0].place), name, old[0].stream, rows, old[0].earliest, surveys)
        with self.transaction() as writing:
            writing.replace_segments(old, new._replace(latest=max(each.latest for each in old)))


def _due(in_order: Iterable[Segment]) -> list[list[Segment]]:
    """Runs of TOGETHER segments none of which is much of the whole: so each is written anew a few times only."""
    runs = []
    for _, of_stream in groupby(in_order, key=lambda each: each.stream):
        segments, at = [*of_stream], 0
        while at + TOGETHER <= len(segments):
            run = segments[at : at + TOGETHER]
            size = sum(each.size for each in run)
            if size <= MOST_BYTES and 4 * max(each.size for each in run) <= size:
                runs.append(run)
                at += TOGETHER
            else:
                at += 1
    return runs


def _delete(place: Place, names: Iterable[str], but: Collection[str]) -> None:
    with suppress(Unwritable):
        for name in names:
            if name not in but:
                place.delete(name)
