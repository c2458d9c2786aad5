"""What an operator's look at a store and its surroundings finds; each finding says what to do.

Opens the store beside servers that run on it, and changes nothing. What is in memory of a server it cannot see.
"""

import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from changeling_protocol import UnixSeconds, __version__
from changeling_statistics import format_instant

from ..errors import StoreError
from ..fold import engine_plugin
from ..ingest import Registry
from ..segments import place_at
from ..store import AtRest, Store
from ..store.catalogue import places_of, segment_bytes
from ..store.clock import kept_time
from ..store.embedded import LEAST_FREE_BYTES
from ..store.file_lock import SUFFIX
from ..store.id_files import IdFile, registered_files
from ..store.log import first_unfolded, unfolded
from ..store.migrating import found_version
from ..store.opened import connected
from ..store.recovery import silent_streams
from ..store.schema import VERSION
from ..store.sealing_keys import KeyState, key_lives, private_keys
from .guarded_clock import MOST_STEP
from .health import MOST_SILENT_SECONDS, Severity, covered_until, held_up, troubles_of_keys

ENOUGH_FREE_BYTES = 2**30
SOON_SECONDS = 14 * 86_400
LONG_UNFOLDED_SECONDS = 60.0
_GIB = 2**30


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that was looked at. severity: OK where there is nothing to do. remedy: what to do, else empty."""

    name: str
    severity: Severity
    detail: str
    remedy: str = ""


def examine(place: str, at_rest: AtRest | None, secrets: Sequence[Path], now: UnixSeconds) -> Iterator[Finding]:
    """Look at a store.

    place: a file's path or a URL. at_rest: the store key, None where it cannot be read. secrets: files that only their
    owner may read. now: Unix seconds.
    """
    yield Finding("program", Severity.OK, f"changeling {__version__}, schema version {VERSION}")
    yield from _of_files(place, secrets)
    if "://" not in place and not Path(place).is_file():
        yield Finding(
            "store", Severity.BAD, f"there is no store at {place}", "start a server on it, or restore a backup"
        )
        return
    try:
        with connected(place) as database:
            version = found_version(database)
    except (StoreError, ValueError, OSError) as error:
        yield Finding("store", Severity.BAD, f"{error}", "mend that, or name another --store")
        return
    if version != VERSION:
        detail = (
            f"it has {'no tables' if version is None else f'schema version {version}'}, this program needs {VERSION}"
        )
        remedy = "run `changeling store upgrade`, or the version of changeling that wrote it"
        yield Finding("store", Severity.BAD, detail, "start a server on it" if version is None else remedy)
        return
    yield Finding("store", Severity.OK, f"schema version {version}")
    with closing(Store.open(place, at_rest or AtRest())) as store:
        yield from _of_store(store, at_rest, now)


def _of_files(place: str, secrets: Sequence[Path]) -> Iterator[Finding]:
    file = None if "://" in place else Path(place)
    own = (
        [] if file is None else [file, *(file.with_name(file.name + end) for end in ("-wal", "-shm", "-fold", SUFFIX))]
    )
    for path in [each for each in (*own, *secrets) if each.exists()]:
        if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            yield Finding("permissions", Severity.BAD, f"others may read or write {path}", f"chmod 600 {path}")
        else:
            yield Finding("permissions", Severity.OK, f"{path} is its owner's alone")
    if file is not None and file.parent.is_dir():
        free = shutil.disk_usage(file.parent).free
        severity = Severity.OK if free >= ENOUGH_FREE_BYTES else Severity.DEGRADED
        severity = Severity.BAD if free < LEAST_FREE_BYTES else severity
        remedy = "" if severity is Severity.OK else "make room: with less than 32 MiB no upload is taken"
        yield Finding("disk", severity, f"{free / _GIB:.1f} GiB are free", remedy)


def _of_spark(files: Sequence[IdFile]) -> Iterator[Finding]:
    """Where Spark folds the store: whether what that needs is here, and the files with ids that it wrote."""
    if not files:
        return
    lacking = engine_plugin("spark").missing()
    if lacking is not None:
        yield Finding("spark", Severity.DEGRADED, lacking, "needed where `changeling fold --engine spark` is run")
    else:
        yield Finding("spark", Severity.OK, f"its library and Java are here; {len(files)} files hold ids")


def _of_store(store: Store, at_rest: AtRest | None, now: UnixSeconds) -> Iterator[Finding]:
    registry = Registry(store)
    registry.refresh()
    with store.reading() as connection:
        kept, lives = kept_time(connection), key_lives(connection)
        waiting, first = unfolded(connection), first_unfolded(connection)
        silent, places, size = silent_streams(connection), places_of(connection), segment_bytes(connection)
        try:
            if at_rest is not None:
                private_keys(connection, at_rest)
        except StoreError as error:
            yield Finding(
                "store-key", Severity.BAD, f"{error}", "give the one that the server has, with --store-key-file"
            )
        files = registered_files(connection)
    yield from _of_spark(files)
    yield from _of_keys(registry, now)
    for life in lives:
        if life.state(now) is KeyState.UNSIGNED:
            remedy = "publish it once it is signed; else it is of no use"
            yield Finding("keys", Severity.DEGRADED, f"key {life.id.hex()} is not published", remedy)
        elif life.in_clear:
            yield Finding("keys", Severity.OK, f"key {life.id.hex()} lies in the store unencrypted", "give a store key")
    yield from _of_surveys(registry, now)
    if kept.jumped or kept.told / 1000 > now + MOST_STEP:
        shown = format_instant(UnixSeconds(kept.told // 1000))
        detail = (
            f"it was {shown} by the store, and a server doubts its clock" if kept.jumped else f"it is behind {shown}"
        )
        yield Finding("clock", Severity.BAD, detail, "set it right, or `changeling clock confirm`")
    else:
        yield Finding(
            "clock", Severity.OK, f"it is {format_instant(UnixSeconds(int(now)))}, after all that the store knows"
        )
    for place in places:
        trouble = place_at(place).trouble()
        remedy = "mount the folder here, or make room" if trouble else ""
        detail = trouble or f"{size / _GIB:.1f} GiB of the log lie in segments, at {place}"
        yield Finding("segments", Severity.BAD if trouble else Severity.OK, detail, remedy)
    for each in silent:
        if now - each.frontier / 1000 > MOST_SILENT_SECONDS:
            remedy = "run a server or `changeling segments recover` where its folder is"
            yield Finding("segments", Severity.BAD, f"nothing is sealed: {held_up(each)}", remedy)
    late = first is not None and now - first / 1000 > LONG_UNFOLDED_SECONDS
    remedy = "see that a server that folds, or `changeling fold`, runs, and what its log says" if late else ""
    detail = f"{waiting} of the log wait to be counted"
    yield Finding("fold", Severity.BAD if late else Severity.OK, detail, remedy)


def _of_keys(registry: Registry, now: UnixSeconds) -> Iterator[Finding]:
    troubles = [*troubles_of_keys(registry, now)]
    for trouble in troubles:
        yield Finding("keys", trouble.severity, trouble.detail, "`changeling keys new`, `keys sign`, `keys publish`")
    last = covered_until((each.key for each in registry.keys.values()), now)
    if not troubles:
        days = (
            "none is needed" if last is None else f"{(last.expires - now) / 86_400:.0f} days until the last one expires"
        )
        yield Finding("keys", Severity.OK, days)


def _of_surveys(registry: Registry, now: UnixSeconds) -> Iterator[Finding]:
    for id_ in registry.unreadable:
        detail = f"{id_.hex()} cannot be read by this version, and is not run"
        yield Finding("survey", Severity.DEGRADED, detail, "run the version that published it, or a later one")
    for id_, published in registry.surveys.items():
        left = published.survey.calendar.time(published.last) - now
        if left < 0:
            yield Finding("survey", Severity.OK, f"{id_.hex()} has ended")
        elif left < SOON_SECONDS:
            remedy = "to go on, publish its successor: `changeling survey extend`"
            yield Finding("survey", Severity.DEGRADED, f"{id_.hex()} ends in {left / 86_400:.1f} days", remedy)
        else:
            yield Finding("survey", Severity.OK, f"{id_.hex()} ends in {left / 86_400:.0f} days")
