"""What a server that was killed has left in its journals, made segments of by whoever finds the server gone.

The lock on a stream's files ends with its process. Until its journals are recovered nothing is sealed beyond what the
catalogue has of it, so nothing that was acknowledged in time becomes late.
"""

import logging
from typing import TYPE_CHECKING, NamedTuple

from changeling_protocol import UnixMilliseconds
from sqlalchemy import Connection, select

from ..errors import SegmentLost, Unwritable
from ..segments import place_at
from .catalogue import doomed_files, move_frontier, segments_of
from .log import length_of
from .opened import Store
from .rolling import roll, segment_name, write_segment
from .schema import segments, streams

if TYPE_CHECKING:
    from ..segments.folder import Folder
    from ..segments.ownership import Owned

_log = logging.getLogger("changeling")


class Silent(NamedTuple):
    """A stream of which its server may have more than the catalogue. frontier: Unix milliseconds."""

    stream: int
    place: str
    files: str
    frontier: UnixMilliseconds


def silent_streams(connection: Connection) -> list[Silent]:
    """The streams with a frontier: their servers are busy, or gone."""
    query = select(streams.c.id, streams.c.place, streams.c.files, streams.c.frontier)
    return [Silent(*row) for row in connection.execute(query.where(streams.c.frontier.is_not(None)))]


def recover(store: Store, now: UnixMilliseconds) -> list[Silent]:
    """Make segments of what servers that are gone have left; returns the streams for which it did.

    now: Unix milliseconds. Raises SegmentLost, Unwritable or OSError where a folder cannot be used, or a journal is
    damaged, once it has done what it can for the other streams.
    """
    with store.reading() as connection:
        silent = silent_streams(connection)
    done, failed = list[Silent](), list[Exception]()
    for each in silent:
        try:
            if _recover(store, each, now):
                done.append(each)
        except (SegmentLost, Unwritable, OSError) as error:
            failed.append(error)
    if failed:
        raise failed[0]
    return done


def give_up(store: Store, stream: int) -> bool:
    """Count what the catalogue has of a stream, and nothing else: its folder is lost.

    False where nothing waits, or where its server can be seen to run.
    """
    with store.writing() as connection:
        found = [each for each in silent_streams(connection) if each.stream == stream]
        if not found or _runs(found[0]):
            return False
        move_frontier(connection, stream, None)
    return True


def clear_given_up(store: Store) -> int:
    """Delete what servers that are gone have left in folders and nobody waits for; returns how many files.

    Those are the journals of streams that were given up, where their folders have come back, and locks. A server that
    runs holds its lock, and keeps its files. Raises Unwritable where a folder cannot be read or written.
    """
    from ..segments.folder import Folder
    from ..segments.ownership import SUFFIX

    resting = streams.c.place.is_not(None), streams.c.frontier.is_(None)
    with store.reading() as connection:
        found = connection.execute(select(streams.c.id, streams.c.place, streams.c.files).where(*resting)).all()
    deleted = 0
    for name in sorted({each.place for each in found}):
        folder = place_at(name)
        if isinstance(folder, Folder) and folder.path.is_dir():
            locks = {each.name for each in folder.kept("") if each.name.endswith(SUFFIX)}
            for each in found:
                if each.place == name and f"{each.files}{SUFFIX}" in locks:
                    deleted += _clear(store, folder, each.id, each.files)
    return deleted


def _clear(store: Store, folder: "Folder", stream: int, files: str) -> int:
    from ..segments import journal
    from ..segments.ownership import Owned

    try:
        owned = Owned(folder, files)
    except OSError:  # its server runs, or has just ended
        return 0
    done = False
    try:
        with store.reading() as connection:
            if any(each.stream == stream for each in silent_streams(connection)):  # its server wrote again, and died
                return 0
        journals = [each.name for each in folder.kept(f"{files}-") if each.name.endswith(journal.SUFFIX)]
        for name in journals:
            folder.remove(name)
        done = True
    finally:
        owned.let_go(done=done)
    return len(journals) + 1


def _runs(silent: Silent) -> bool:
    """Whether a stream's server holds the lock on its files, as far as can be seen from here."""
    try:
        owned = _owned(silent)
    except OSError:  # its folder is gone, which is why it is given up
        return False
    if owned is not None:
        owned.let_go(done=False)
    return owned is None


def _owned(silent: Silent) -> "Owned | None":
    """A stream's files; None where its server has them. Raises FileNotFoundError where they are not here, or OSError.

    Its lock is there before a stream can wait for anything. So a folder without it is another one, as the place where
    nothing is mounted yet.
    """
    from ..segments.ownership import Owned  # there are none where there are no files to lock

    try:
        return Owned(_folder(silent), silent.files)
    except BlockingIOError:
        return None


def _folder(silent: Silent) -> "Folder":
    """Where a stream with a frontier lies: one in a bucket has none."""
    from ..segments.folder import Folder

    folder = place_at(silent.place)
    assert isinstance(folder, Folder)  # noqa: S101
    return folder


def _recover(store: Store, silent: Silent, now: UnixMilliseconds) -> bool:
    """Whether its server was gone."""
    try:
        owned = _owned(silent)
    except FileNotFoundError:  # on another machine, perhaps
        return False
    if owned is None:
        return False
    done = False
    try:
        _roll_journals(store, silent, _folder(silent), now)
        done = True
    finally:
        owned.let_go(done=done)
    _log.warning("recovered what a server had acknowledged", extra={"stream": silent.stream})
    return True


def _roll_journals(store: Store, silent: Silent, folder: "Folder", now: UnixMilliseconds) -> None:
    from ..segments.journal import SUFFIX, read_journal

    journals = [folder.path / each.name for each in folder.kept(f"{silent.files}-") if each.name.endswith(SUFFIX)]
    read = [read_journal(path) for path in journals]
    for path, journal in zip(journals, read, strict=True):
        if journal.torn:  # by a kill, nearly always: then nothing of it was acknowledged
            _log.warning("the end of a journal cannot be read", extra={"journal": f"{path}", "bytes": journal.torn})
    # A write that failed was not acknowledged: its positions are those with which the next journal begins.
    ends = [*(journal.first for journal in read[1:]), 2**63]
    for journal, end in zip(read, ends, strict=False):  # one end too many where there is no journal
        with store.reading() as connection:
            length = length_of(connection, silent.stream)
        rows = [row for row in journal.rows if length < row.position < end]
        if rows:
            written = write_segment(folder, silent.stream, segment_name(silent.files, rows[0].position), rows)
            with store.writing() as connection:
                roll(connection, folder, written, journal.start, UnixMilliseconds(rows[-1].arrival + 1), now)
    for path in journals:  # while the stream still waits, so that whoever is killed here leaves them to the next
        path.unlink(missing_ok=True)
    _remove_unnamed(store, silent, folder)
    with store.writing() as connection:
        move_frontier(connection, silent.stream, None)


def _remove_unnamed(store: Store, silent: Silent, folder: "Folder") -> None:
    """Delete what was written and did not come into the catalogue.

    What a fold writes anew meanwhile is doomed before it is written, and stays; so the files are listed first.
    """
    lying = [*folder.kept(f"{silent.files}-")]
    with store.reading() as connection:
        named = {each.name for each in segments_of(connection, segments.c.stream == silent.stream)}
        named |= {name for _, name in doomed_files(connection)}
    for each in lying:
        if each.name not in named:
            folder.remove(each.name)
