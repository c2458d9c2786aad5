"""Driving the fold on Spark over a store: all that the log holds by now in one run, and one transaction.

The transaction moves the cursors by compare-and-set, adds tallies, attendance and refusals, and says which files hold
the ids from then on. So a run that is killed anywhere, repeated, or overtaken by another has changed nothing.
"""

import secrets
from contextlib import ExitStack, suppress

from changeling_protocol.quantities import UnixSeconds

from ..errors import AggregatorError
from ..fold import FoldReport
from ..fold.closing import latest_right
from ..fold.folding import add_counted, in_turn
from ..segments import Place, place_at
from ..store import ClosingKey, Store, Transactions
from ..store.counted import sealed_period
from ..store.early_ends import published_ends
from ..store.id_files import IdFile, registered_files, replace_files
from ..store.runs import drop_runs
from ..store.sealing_keys import private_keys
from ..store.surveys import published_surveys
from .ids_of_runs import ids_of_runs
from .parts import Part
from .pieces import Piece, moves_of
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
    at = place_at(place)
    name = secrets.token_hex(8)
    with store.reading() as connection:
        pieces = pieces_to_fold(connection, at, name, latest_right(connection, now))
        signed = published_surveys(connection)
        ends = {survey: end.last for survey, end in published_ends(connection).items()}
        sealed = {survey: sealed_period(connection, survey) for survey in signed}
        keys = private_keys(connection, store.at_rest) if pieces else {}
        files = registered_files(connection)
        exported = ids_of_runs(connection, at, name, sealed) if pieces else {}
    if not pieces:
        return FoldReport()
    try:
        read = [*files, *exported]
        found = run(executors, name, pieces, read, signed, ends, sealed, keys, place)
        _hand_over(writing, pieces, found, files, exported)
    except BaseException:
        with suppress(AggregatorError):
            _sweep(store, at, name)
        raise
    _sweep(store, at)
    return FoldReport.of(sum(piece.until - piece.after for piece in pieces), found.counted)


def _hand_over(
    writing: Transactions,
    pieces: list[Piece],
    found: Part,
    files: list[IdFile],
    exported: dict[IdFile, list[tuple[ClosingKey, int]]],
) -> None:
    counted = found.whole()
    with writing() as connection:
        add_counted(connection, moves_of(pieces), counted)
        # Of a survey that could not be counted the ids stay where they were.
        replace_files(
            connection,
            [each for each in files if each.survey not in found.failed],
            [each for each in found.files if each.survey not in found.failed],
        )
        drop_runs(
            connection, [run for file, runs in exported.items() if file.survey not in found.failed for run in runs]
        )


def _sweep(store: Store, place: Place, run: str = "") -> None:
    """Delete the files of runs, but for those with ids that count. run: of this one alone, where it has failed.

    Who has moved the cursors may delete the others' too: whoever still works on the same requests is overtaken.
    """
    with store.reading() as connection:
        named = {each.name for each in registered_files(connection)}
    for kind in ("ids", "staged"):
        for kept in list(place.kept(f"{kind}-{run}")):
            if kept.name not in named:
                place.remove(kept.name)
