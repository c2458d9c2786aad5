"""Driving the fold on Spark over a store: all that the log holds by now in one run, and one transaction.

The transaction moves the cursors by compare-and-set, adds tallies, attendance and refusals, and says which files hold
the ids from then on. So a run that is killed anywhere, repeated, or overtaken by another has changed nothing, and what
files it leaves the next one deletes.
"""

import secrets
from collections.abc import Collection, Iterator
from contextlib import ExitStack, suppress
from hashlib import blake2b
from pathlib import Path

from changeling_protocol.quantities import UnixSeconds

from ..errors import AggregatorError, Overtaken
from ..fold import FoldReport
from ..fold.closing import latest_right
from ..fold.folding import add_counted, in_turn
from ..segments import Place, place_at
from ..store import ClosingKey, Store, Transactions
from ..store.counted import sealed_period
from ..store.early_ends import published_ends
from ..store.id_files import IdFile, registered_files, replace_files
from ..store.log import unfolded
from ..store.runs import drop_runs
from ..store.sealing_keys import private_keys
from ..store.surveys import published_surveys
from .ids_of_runs import ids_of_runs
from .parts import Part
from .pieces import moves_of
from .running import Executors, SparkExecutors, run
from .session import Cluster, session
from .unread import pieces_to_fold


class SparkFold:
    """Folds a store on a Spark cluster, as `fold.FoldProcess` does in a process.

    place: where its files lie, which the driver and all executors reach.
    """

    def __init__(self, store: Store, cluster: Cluster, place: str) -> None:
        self._store, self._cluster, self._place = store, cluster, place
        self._stack = ExitStack()
        self._executors: Executors | None = None

    def await_start(self) -> None:
        """Start the session where there is none. Raises SparkTrouble."""
        if self._executors is None:
            self._executors = SparkExecutors(self._stack.enter_context(session(self._cluster)))

    def fold(self, now: UnixSeconds, *, closing: bool) -> FoldReport:
        """As `fold.fold`. Call `await_start` before. Raises SparkTrouble, and what the store and the place raise."""
        self.await_start()
        assert self._executors is not None  # noqa: S101
        executors = self._executors
        return in_turn(
            self._store, now, closing, lambda writing: fold_once(self._store, executors, self._place, now, writing)
        )

    def turn_to(self, store: Store) -> None:
        """Fold another store from now on, in the same session."""
        self._store = store

    def close(self) -> None:
        """End the session, and what runs in it."""
        self._executors = None
        self._stack.close()


def fold_once(store: Store, executors: Executors, place: str, now: UnixSeconds, writing: Transactions) -> FoldReport:
    """Fold what the log holds, in one run. Raises SparkTrouble; Overtaken where another folder counted some of it."""
    with store.reading() as connection:
        if not unfolded(connection):
            return FoldReport()
    at, whose = place_at(place), _whose(store)
    name = f"{whose}-{secrets.token_hex(8)}"
    _sweep(at, whose, writing)
    try:
        with store.reading() as connection:
            pieces = pieces_to_fold(connection, at, name, latest_right(connection, now))
            if not pieces:
                return FoldReport()
            moves = moves_of(pieces)
            signed = published_surveys(connection)
            ends = {survey: end.last for survey, end in published_ends(connection).items()}
            sealed = {survey: sealed_period(connection, survey) for survey in signed}
            keys = private_keys(connection, store.at_rest)
            files = registered_files(connection)
            exported = ids_of_runs(connection, at, name, sealed)
        found = run(executors, name, pieces, [*files, *exported], signed, ends, sealed, keys, place)
    except BaseException:
        _remove(at, name)
        raise
    try:
        named = _hand_over(writing, moves, found, files, exported)
    except Overtaken:
        _remove(at, name)
        raise
    _remove(at, name, named)
    with suppress(AggregatorError):
        for each in files:
            if each.name not in named:
                place_at(each.place).remove(each.name)
    return FoldReport.of(sum(until - after for after, until in moves.values()), found.counted)


def _hand_over(
    writing: Transactions,
    moves: dict[int, tuple[int, int]],
    found: Part,
    files: list[IdFile],
    exported: dict[IdFile, list[tuple[ClosingKey, int]]],
) -> set[str]:
    """Write what was counted; returns the names of the files that hold ids from then on.

    Where the connection is lost as it ends it may count or not: then no file may go that it names.
    """
    counted = found.whole()
    # Of a survey that could not be counted the ids stay where they were.
    old, new = ([each for each in some if each.survey not in found.failed] for some in (files, found.files))
    with writing() as connection:
        add_counted(connection, moves, counted)
        replace_files(connection, old, new)
        drop_runs(
            connection, [run for file, runs in exported.items() if file.survey not in found.failed for run in runs]
        )
    return {each.name for each in (*files, *new)} - {each.name for each in old}


def _whose(store: Store) -> str:
    """How the names of a store's files begin, so that nobody sweeps the files of another that has the same place."""
    where = store.place if "://" in str(store.place) else Path(store.place).absolute()
    return blake2b(str(where).encode(), digest_size=6).hexdigest()


def _sweep(place: Place, whose: str, writing: Transactions) -> None:
    """Delete what runs of a store have left that were killed.

    It lay there before this moment, in which the turn is this process's: so no other run can come to count with it.
    """
    lying = [*_lying(place, whose)]
    with writing() as connection:
        named = {each.name for each in registered_files(connection)}
    for name in lying:
        if name not in named:
            place.remove(name)


def _lying(place: Place, whose: str) -> Iterator[str]:
    """The names of the files of a store's runs, or of one run."""
    for kind in ("ids", "staged"):
        yield from (each.name for each in place.kept(f"{kind}-{whose}-"))


def _remove(place: Place, run: str, named: Collection[str] = ()) -> None:
    """Delete a run's files but for those with ids that count; what cannot be deleted now is swept by the next run."""
    with suppress(AggregatorError):
        for name in [*_lying(place, run)]:
            if name not in named:
                place.remove(name)
