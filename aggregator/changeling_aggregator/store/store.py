"""An open store: its transactions, the turn to fold, and what is done to it outside of them.

`View` and `Transaction` have all that is read and written; values go in, values come out, and no caller meets a
connection of the database. `Turn` is the fold's, which one process at a time has. In it the fold also puts files in
order: many small segments are written anew as one. The files to be deleted are read in a transaction of the turn: a
process that has lost its turn gets none, and deletes nothing of its successor.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from pathlib import Path
from typing import Self

from changeling_protocol import RefusalCounts, SurveyId, UnixMilliseconds, UnixSeconds

from ..errors import AggregatorError, StoreError, Unwritable
from ..segments import Place, place_at
from . import schema
from .counts import ReadCounts
from .database import IN_CLEAR, AtRest, Database, EmbeddedDatabase, Transactions, claim, migrate, usable, version_of
from .files import RUN_ENDS, SEGMENT_ENDS, FileKind, Segment, rows_of, segment_name, written_segment
from .log import LogState, ReadLog, WriteLog
from .registry import ReadRegistry, WriteRegistry

TOGETHER = 16
"""The number of small segments in a row that become one."""
MOST_BYTES = 64 * 2**20
"""The most that is read for one."""
MOST_MADE = 4
"""The most segments that are made at a time: the next fold waits for them."""
OLD_SECONDS = 3600.0


class View(ReadRegistry, ReadLog, ReadCounts):
    """One state of a store, to read: what others commit meanwhile is not seen."""


class Transaction(WriteRegistry, WriteLog, View):
    """A transaction that may write: whole and on disk when it ends, and nothing of it where it raises."""


class Turn:
    """The turn of this process to fold; what is written in it is lost once another process has it."""

    def __init__(self, store: "Store", transactions: Transactions) -> None:
        self._store, self._transactions = store, transactions

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """A transaction of the turn. Raises Overtaken, or what the database raises, once the turn is lost."""
        with self._transactions() as connection:
            yield Transaction(connection, self._store.at_rest)

    def compact(self) -> int:
        """Write some small segments anew as larger ones, and delete garbage; returns how many it replaced.

        Raises Unwritable or SegmentLost.
        """
        with self._store.view() as view:
            due = _due(view._compactable(MOST_BYTES // 4, TOGETHER))[:MOST_MADE]
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
        with self._store.view() as view:
            streams = [each for each in view.streams().values() if each.place is not None]
        prefixes = {each.prefix for each in streams}
        present = [  # each place is listed once: an object store is paid for that
            (place, each)
            for place in sorted({each.place for each in streams if each.place is not None})
            for each in place_at(place).list("")
            if each.name.partition("-")[0] in prefixes and each.name.endswith((SEGMENT_ENDS, f"{SEGMENT_ENDS}.part"))
        ]
        with self._store.view() as view:  # after the files were listed, so that all that were named by then are known
            named = {name for _, name in view._named(FileKind.SEGMENT, FileKind.GARBAGE)}
        unnamed = [at for at in present if at[1].name not in named and now - at[1].written > OLD_SECONDS]
        for place, each in unnamed:
            place_at(place).delete(each.name)
        return len(unnamed)

    @contextmanager
    def run(self, place: str, name: str) -> Iterator[None]:
        """A run beyond this machine: files at a place whose names begin with its name are the store's until it ends.

        name: which no other run has. What earlier runs left is deleted before; after one that did not raise, all that
        does not count.
        """
        self._sweep_runs()
        with self.transaction() as writing:
            writing._register(place, f"{name}{RUN_ENDS}", FileKind.RUN)
        yield
        with suppress(AggregatorError):
            self._sweep_runs(name)

    def _sweep_runs(self, last: str | None = None) -> None:
        """Delete the files of all runs beyond this machine, but for those with ids that count.

        A place that cannot be reached is swept another time: that is no reason not to count a run.
        last: the run that has just ended, if one has. Other runs that have no files left are then forgotten; this one
        is not, as a task of it that was given up may still write.
        """
        with self._store.view() as view:
            begun = sorted(view._named(FileKind.RUN))
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
                writing._forget([run for run in empty if run[1] != f"{last}{RUN_ENDS}"])
        for (place, _), names in present.items():
            _delete(place_at(place), names, counting)

    def _delete_garbage(self) -> None:
        with self._store.view() as view:
            if not view._named(FileKind.GARBAGE):
                return
        with self.transaction() as writing:
            garbage = writing._named(FileKind.GARBAGE)
        for place, name in garbage:
            place_at(place).delete(name)
        with self.transaction() as writing:
            writing._forget(garbage)

    def _compact(self, old: list[Segment]) -> None:
        """Put one segment into the place of these."""
        rows = [row for each in old for row in rows_of(each)]
        name = segment_name(old[0].name.partition("-")[0], old[0].first)
        with self.transaction() as writing:
            writing._register(old[0].place, name)
        surveys = {survey for each in old for survey in each.survey_ids} if all(each.surveys for each in old) else ()
        new = written_segment(place_at(old[0].place), name, rows, surveys)
        with self.transaction() as writing:
            writing._replace_segments(old, new)


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


_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


class Store:
    """An open store. Threads may share it; a transaction belongs to one of them.

    place: where it lies, to open it in another process. at_rest: what its private keys are encrypted under.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     store = Store.open(Path(folder) / "store.db")
    ...     stream = store.open_stream(SurveyId(bytes(16)))
    ...     store.append({stream: [b"an upload request"]}, UnixMilliseconds(1000))
    ...     with store.view() as view:
    ...         view.log_state().unfolded
    ...     store.close()
    1
    """

    def __init__(self, database: Database, place: Path | str, at_rest: AtRest) -> None:
        self.place, self.at_rest = place, at_rest
        self._database = database
        self._overwritten = True  # by a process that was killed, perhaps

    @classmethod
    def open(cls, place: Path | str, at_rest: AtRest = IN_CLEAR, *, alone: bool = False) -> Self:
        """The store at this place, made if there is none. Raises StoreError, ValueError or OSError.

        place: a file's path, or the URL of a PostgreSQL database. at_rest: what its private keys are encrypted under;
        needed only by who makes or uses them. alone: whether nobody else may have it open meanwhile.
        """
        database = database_at(place, alone)
        try:
            claim(database)
            database.insist_on(schema.VERSION)
        except BaseException:
            database.close()
            raise
        return cls(database, place, at_rest)

    @contextmanager
    def view(self) -> Iterator[View]:
        """One state of the store, to read."""
        with self._database.reader() as connection, connection.begin():
            yield View(connection, self.at_rest)

    @contextmanager
    def transaction(self, once: bool = False) -> Iterator[Transaction]:
        """A transaction that may write. It is on disk when it ends, and nothing of it is kept where it raises.

        once: it is one statement, which may be on disk as soon as that returns. Where the connection is lost as it ends
        it may be kept or not, and raises: nothing of it is acknowledged then.
        """
        with self._database.writing(once) as connection:
            yield Transaction(connection, self.at_rest)

    @contextmanager
    def turn_to_fold(self) -> Iterator[Turn | None]:
        """The turn of this process to fold, until the context ends; None where another process has it.

        A transaction of the turn that begins, or ends, once the turn is lost raises: Overtaken, or what the database
        raises.
        """
        with self._database.turn() as transactions:
            yield None if transactions is None else Turn(self, transactions)

    def open_stream(self, survey: SurveyId | None = None, place: str | None = None, prefix: str | None = None) -> int:
        """The number of a new, empty stream, which no other process gets.

        survey: whose requests alone it has; None for any. place, prefix: of one that lies in segments, where they are
        and how the names of all of them begin.
        """
        with self.transaction() as writing:
            return writing._open_stream(survey, place, prefix)

    def append(
        self, requests: Mapping[int, Sequence[bytes]], now: UnixMilliseconds, refused: RefusalCounts | None = None
    ) -> None:
        """Put requests at the ends of streams, and count refusals; all is on disk when this returns.

        requests: by stream, from `open_stream`; those with smaller numbers come first. now: Unix milliseconds; they all
        arrive then, or later where that is past. Where nothing is given it tries whether it could write.
        """
        once = len(requests) == 1 and not refused and all(map(self._database.appends_at_once, requests.values()))
        with self.transaction(once) as writing:
            for stream, bodies in sorted(requests.items()):
                writing._append(stream, bodies, now)
            if refused:
                writing.add(refused=refused)
            elif not requests:
                writing.stop_appending()  # which changes nothing, and is written all the same

    def forget_overwritten(self, changed: bool) -> None:
        """Take bytes that were overwritten since out of the store's files, as far as the database lets us; and give the
        disk back what was deleted, where hardly anything else is left.

        changed: whether anything was overwritten since the last time. Where somebody is reading for longer than a
        second it is left for the next call, which then does it in any case.
        """
        self._overwritten |= changed
        if self._overwritten:
            self._overwritten = not self._database.forget_overwritten()
        self._database.give_back()

    def write_back(self) -> None:
        """Move what was written to its place in the database's files, so that no upload has to, or waits for it."""
        self._database.write_back()

    def free_bytes(self) -> int | None:
        """How many bytes are free on its disk; None where that is another machine's."""
        return self._database.free_bytes()

    def bytes_kept(self, log: LogState) -> int:
        """About how many bytes all that it holds takes, its segments with it, without what was deleted.

        log: the state of its log, as a view gave it.
        """
        return self._database.bytes_kept() + log.segment_bytes

    def trouble(self) -> str | None:
        """Why no upload should be appended to it, as far as can be told at once; None where all is well."""
        return self._database.trouble()

    def close(self) -> None:
        """Close its connections; a transaction in hand is lost."""
        self._database.close()


def _postgresql(url: str, alone: bool) -> Database:
    try:
        from .postgresql import PostgreSQLDatabase
    except ModuleNotFoundError as error:
        raise StoreError('a store on PostgreSQL needs its driver: pip install "changeling[postgres]"') from error
    return PostgreSQLDatabase(url, alone)


_databases: dict[str, Callable[[str, bool], Database]] = {"postgresql": _postgresql}


def register_database(scheme: str, opened: Callable[[str, bool], Database]) -> None:
    """Have stores at URLs of this scheme opened by this function from now on.

    opened: takes the URL, and whether nobody else may have the store open meanwhile. Raises what `Store.open` raises.
    """
    _databases[scheme] = opened


def database_at(place: Path | str, alone: bool = False) -> Database:
    """The database at a file's path, or at a URL of a registered kind. alone: whether nobody else may have it open.

    Raises ValueError for another URL, StoreError where the driver is not installed or others have it open, or OSError.
    """
    url = _SCHEME.match(place) if isinstance(place, str) else None
    if isinstance(place, Path) or url is None:
        return EmbeddedDatabase(Path(place), alone)
    if url[1] not in _databases:
        known = ", ".join(f"{scheme}://…" for scheme in sorted(_databases))
        raise ValueError(f"a store is a file, or a database at {known}, not at {url[1]}://…")
    return _databases[url[1]](place, alone)


def version_at(place: Path | str) -> int | None:
    """The schema version of the store at a place; None where there is no store. Raises StoreError, ValueError, OSError.

    place: as `Store.open` takes it.
    """
    if _is_missing_file(place):
        return None
    database = database_at(place)
    try:
        with usable(database), database.reader() as connection, connection.begin():
            return version_of(connection, database)
    finally:
        database.close()


def upgrade(place: Path | str) -> int | None:
    """Bring the store at a place, which nobody else may have open, to this program's schema version.

    Returns the version before; None where there is no store. Raises StoreError, ValueError, OSError.
    """
    if _is_missing_file(place):
        return None
    database = database_at(place, alone=True)
    try:
        return migrate(database)
    finally:
        database.close()


def _is_missing_file(place: Path | str) -> bool:
    """True where SQLite would make a file just by looking."""
    return "://" not in str(place) and not Path(place).exists()


def files_of(path: Path) -> list[Path]:
    """The files that a store in a file at this path may have, with those that it has."""
    return [path, *(path.with_name(path.name + end) for end in ("-wal", "-shm", "-fold", "-held"))]
