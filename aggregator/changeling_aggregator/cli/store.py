"""A store as operators handle it: its schema version, segments of its log, backups; and `changeling doctor`.

The doctor looks at a store and at its surroundings, and says what to do about each finding. It opens the store beside
servers that run on it, and changes nothing. What is in memory of a server it asks the server.
"""

import shutil
import stat
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from changeling_protocol import UnixMilliseconds, UnixSeconds, __version__, format_instant
from changeling_protocol.wire import READY

from .access import SettingsCommand, StoreKeyFile, existing_store, read_store_key

app = typer.Typer(help="Show and change the schema version of a store.", no_args_is_help=True)

STORE_HELP = "A file, or the URL of a PostgreSQL database, postgresql://USER@HOST/DATABASE, without its password."


@app.command()
def version(store: Annotated[str, typer.Option(help=STORE_HELP)]) -> None:
    """Print the schema version that the store has, and the one that this program needs."""
    from ..store import VERSION, version_at

    found = version_at(store)
    has = "no store yet" if found is None else f"schema version {found}"
    typer.echo(f"{store} has {has}; this program needs {VERSION}")


@app.command()
def upgrade(store: Annotated[str, typer.Option(help=f"{STORE_HELP} No server may be running on it.")]) -> None:
    """Bring a store that an earlier program wrote to the schema version that this one needs. Make a backup before."""
    from ..store import VERSION
    from ..store import upgrade as bring_up

    before = bring_up(store)
    if before is None:
        typer.echo(f"{store} has no store yet: start a server on it")
    elif before == VERSION:
        typer.echo(f"{store} has schema version {VERSION} already")
    else:
        typer.echo(f"{store} went from schema version {before} to {VERSION}")


SEGMENTS_HELP = "A folder, or an object store, s3://BUCKET/PREFIX, gs://… or az://…; without it, the store itself."

segments = typer.Typer(help="Look at segments of the log, and put them in order.", no_args_is_help=True)
Named = Annotated[str, typer.Option(help=f"Whose log; servers may be running on it. {STORE_HELP}")]


@segments.command("list")
def list_(store: Named) -> None:
    """Print a line for each segment: its place and name, its positions in its stream, its bytes, what is counted."""
    with closing(existing_store(store)) as opened, opened.view() as view:
        streams = view.streams()
        for each in view.segments():
            rest = each.last - max(streams[each.stream].counted, each.first - 1)
            state = "counted" if rest <= 0 else f"{rest} to count"
            typer.echo(f"{each.place}/{each.name}  {each.first}-{each.last}  {each.size} bytes  {state}")


@segments.command()
def compact(store: Named) -> None:
    """Write small segments anew as larger ones, and delete files of no use: what a killed server wrote and never named.

    A server does the first by itself, a little at a time. While another process folds nothing is done, and it ends
    with 1.
    """
    with closing(existing_store(store)) as opened, opened.turn_to_fold() as turn:
        if turn is None:
            typer.echo("another process is folding: try again")
            raise typer.Exit(1)
        replaced = 0
        while some := turn.compact():
            replaced += some
        swept = turn.sweep(UnixSeconds(time.time()))
    typer.echo(f"{replaced} segments were written anew, {swept} files of no use deleted")


_RESTORED = """\
{store} is what the store was at {taken}. It has not got
- what was acknowledged after that moment, and {unfolded} that were acknowledged and not counted by then. What devices
  still have of it they send again, and it counts;
- the private halves of sealing keys. Make the next one: `changeling keys new`, `keys sign`, `keys publish`. Until then
  devices send nothing, and what is sealed to the old ones is refused and sealed again;
- the log, so that the {open} closings that were open at that moment cannot be folded again, and
  `changeling fold --check` says that they differ until they are sealed. Their ids are there: what was
  counted for them counts once, whoever sends it again.
- surveys and early ends that were published after that moment: publish them again; and tokens: revoke again what was
  revoked.
Results that were shown after that moment may be shown again from fewer reports. Never start the old store again beside
this one. A server that starts on it may doubt its clock: see the operator's guide."""


def backup(
    store: Annotated[str, typer.Option(help=f"What to copy; servers may be running on it. {STORE_HELP}")],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write; none is overwritten.")],
) -> None:
    """Write all that a store has counted and published into one file, as it is at one moment.

    Neither private sealing keys nor the log of envelopes are in it, so what is not counted yet is not.
    """
    from ..store import back_up

    with closing(existing_store(store)) as opened:
        done = back_up(opened, output, UnixMilliseconds(int(time.time() * 1000)))
    typer.echo(
        f"wrote {output}, without {_requests(done.unfolded)} that are not counted yet, and with the ids of "
        f"{len(done.open)} open closings"
    )


def restore(
    file: Annotated[Path, typer.Argument(help="What `changeling backup` wrote.")],
    store: Annotated[str, typer.Option(help=f"A new store, made if missing. {STORE_HELP}")],
) -> None:
    """Put a backup into a new store, and say what is lost."""
    from ..store import Store, opened_backup
    from ..store import restore as put_back

    with opened_backup(file) as connection, closing(Store.open(store)) as opened:
        done = put_back(connection, opened)
    taken = format_instant(UnixSeconds(done.taken // 1000))
    typer.echo(
        _RESTORED.format(store=store, taken=taken, unfolded=_requests(done.unfolded), open=len(done.open)),
    )


def _requests(count: int) -> str:
    return f"{count} upload" + ("" if count == 1 else "s")


if TYPE_CHECKING:
    from ..ingest import Registry
    from ..store import AtRest, Store, View

OK, DEGRADED, BAD = "ok", "degraded", "bad"
ENOUGH_FREE_BYTES = 2**30
SOON_SECONDS = 14 * 86_400
LONG_UNFOLDED_SECONDS = 60.0
MOST_SECONDS_OFF = 5.0
_GIB = 2**30


class DoctorCommand(SettingsCommand):
    """Takes a server's settings, and leaves those alone that it has no use for."""

    takes_others = True


@dataclass(frozen=True, slots=True)
class Finding:
    """A thing that was looked at. severity: OK where there is nothing to do. remedy: what to do, else empty."""

    name: str
    severity: str
    detail: str
    remedy: str = ""


def doctor(
    store: Annotated[str, typer.Option(help=f"What to look at; servers may be running on it. {STORE_HELP}")],
    store_key_file: StoreKeyFile = None,
    certificate_key: Annotated[
        Path | None, typer.Option(help="PEM file with the certificate's private key, to see who may read it.")
    ] = None,
    server: Annotated[str | None, typer.Option(help="The URL of a server to ask as well.")] = None,
    settings: Annotated[Path | None, typer.Option(help="The server's TOML file; what it names is looked at.")] = None,
) -> int:
    """Look whether a server can go on: store, versions, keys, clock, disk, permissions, surveys that end soon.

    A line for each finding, with what to do. Nothing is changed. The exit code is 1 if something is wrong.
    """
    at_rest, findings = None, list[Finding]()
    try:
        at_rest = read_store_key(store_key_file)
    except (ValueError, OSError) as error:
        findings.append(Finding("store-key", BAD, f"{error}", "name the file that the server reads"))
    secrets = [each for each in (store_key_file, certificate_key) if each is not None]
    findings += examine(store, at_rest, secrets, UnixSeconds(time.time()))
    if settings is not None and settings.stat().st_mode & 0o022:
        findings.append(Finding("permissions", BAD, f"others may change {settings}", f"chmod go-w {settings}"))
    if server is not None:
        findings += _server(server)
    for finding in findings:
        remedy = f" -> {finding.remedy}" if finding.remedy else ""
        typer.echo(f"{finding.severity:9}{finding.name}: {finding.detail}{remedy}")
    return int(any(finding.severity == BAD for finding in findings))


def examine(place: str, at_rest: "AtRest | None", secrets: Sequence[Path], now: UnixSeconds) -> Iterator[Finding]:
    """Look at a store and at this machine.

    place: a file's path or a URL. at_rest: the store key, None where it cannot be read. secrets: files that only their
    owner may read. now: Unix seconds.
    """
    from ..errors import StoreError
    from ..store import VERSION, AtRest, Store, version_at

    yield Finding("program", OK, f"changeling {__version__}, schema version {VERSION}")
    yield from _files(place, secrets)
    yield _time_daemon()
    if "://" not in place and not Path(place).is_file():
        yield Finding("store", BAD, f"there is no store at {place}", "start a server on it, or restore a backup")
        return
    try:
        version = version_at(place)
    except (StoreError, ValueError, OSError) as error:
        yield Finding("store", BAD, f"{error}", "mend that, or name another --store")
        return
    if version is None:
        yield Finding("store", BAD, f"it has no tables, this program needs {VERSION}", "start a server on it")
        return
    if version != VERSION:
        remedy = "run `changeling store upgrade`, or the version of changeling that wrote it"
        yield Finding("store", BAD, f"it has schema version {version}, this program needs {VERSION}", remedy)
        return
    yield Finding("store", OK, f"schema version {version}")
    with closing(Store.open(place, at_rest or AtRest())) as store:
        yield from _store(store, at_rest, now)


def _files(place: str, secrets: Sequence[Path]) -> Iterator[Finding]:
    from ..store import LEAST_FREE_BYTES, files_of

    file = None if "://" in place else Path(place)
    own = [] if file is None else files_of(file)
    for path in [each for each in (*own, *secrets) if each.exists()]:
        if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            yield Finding("permissions", BAD, f"others may read or write {path}", f"chmod 600 {path}")
        else:
            yield Finding("permissions", OK, f"{path} is its owner's alone")
    if file is not None and file.parent.is_dir():
        free = shutil.disk_usage(file.parent).free
        severity = OK if free >= ENOUGH_FREE_BYTES else BAD if free < LEAST_FREE_BYTES else DEGRADED
        remedy = "" if severity == OK else "make room: with less than 32 MiB no upload is taken"
        yield Finding("disk", severity, f"{free / _GIB:.1f} GiB are free", remedy)


def _time_daemon() -> Finding:
    """A look at whether a time daemon keeps this machine's clock, as systemd knows it."""
    program = shutil.which("timedatectl")
    asked = [program or "", "show", "--property", "NTPSynchronized", "--value"]
    try:
        said = subprocess.run(asked, capture_output=True, text=True, timeout=10).stdout.strip()  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        said = ""
    if said == "no":
        return Finding("ntp", DEGRADED, "no time daemon keeps this machine's clock", "run chrony or systemd-timesyncd")
    known = "a time daemon keeps this machine's clock" if said == "yes" else "whether one runs cannot be told here"
    return Finding("ntp", OK, known)


def _store(store: "Store", at_rest: "AtRest | None", now: UnixSeconds) -> Iterator[Finding]:
    from ..errors import StoreError
    from ..ingest import Registry

    registry = Registry(store)
    registry.refresh()
    with store.view() as view:
        if at_rest is not None:
            try:
                view.private_keys()
            except StoreError as error:
                yield Finding("store-key", BAD, f"{error}", "give the one that the server has, with --store-key-file")
        yield from _plugins(view)
        yield from _keys(registry, view, now)
        yield from _in_clear(view, at_rest)
        yield from _surveys(registry, now)
        yield _clock(view, now)
        yield _fold(view, now)
    yield from _segments(store)


def _plugins(view: "View") -> Iterator[Finding]:
    """Where Spark folds the store: whether what that needs is here."""
    from ..fold import engine_plugin

    if files := view.id_files():
        missing = engine_plugin("spark").missing()
        if missing is not None:
            yield Finding("spark", DEGRADED, missing, "needed where `changeling fold --engine spark` is run")
        else:
            yield Finding("spark", OK, f"its library and Java are here; {len(files)} files hold ids")


def _keys(registry: "Registry", view: "View", now: UnixSeconds) -> Iterator[Finding]:
    from ..server import covered_until, troubles_of_keys
    from ..store import KeyState

    troubles = [*troubles_of_keys(registry, now)]
    for trouble in troubles:
        yield Finding("keys", trouble.severity, trouble.detail, "`changeling keys new`, `keys sign`, `keys publish`")
    last = covered_until((each.key for each in registry.keys.values()), now)
    if not troubles:
        left = 0.0 if last is None else (last.expires - now) / 86_400
        yield Finding("keys", OK, "none is needed" if last is None else f"{left:.0f} days until the last one expires")
    for life in view.sealing_keys():
        if life.state(now) is KeyState.UNSIGNED:
            remedy = "publish it once it is signed; else it is of no use"
            yield Finding("keys", DEGRADED, f"key {life.id.hex()} is not published", remedy)


def _in_clear(view: "View", at_rest: "AtRest | None") -> Iterator[Finding]:
    """Keys that are not encrypted: what to do about it where there is no store key, and where there is one."""
    encrypts = at_rest is not None and at_rest.secret is not None
    severity, remedy = (
        (DEGRADED, "restart the servers with the store key, or run `changeling keys reencrypt`")
        if encrypts
        else (OK, "give a store key")
    )
    for id_ in view.keys_in_clear():
        yield Finding("keys", severity, f"key {id_.hex()} lies in the store unencrypted", remedy)


def _surveys(registry: "Registry", now: UnixSeconds) -> Iterator[Finding]:
    for id_ in registry.unreadable:
        detail = f"{id_.hex()} cannot be read by this version, and is not run"
        yield Finding("survey", DEGRADED, detail, "run the version that published it, or a later one")
    followed = {bytes(each.survey.follows) for each in registry.surveys.values() if each.survey.follows}
    for id_, published in registry.surveys.items():
        left = published.survey.calendar.time(published.last) - now
        if left < 0:
            yield Finding("survey", OK, f"{id_.hex()} has ended")
        elif published.end is not None:
            yield Finding("survey", OK, f"{id_.hex()} is ended early, in {left / 86_400:.1f} days")
        elif id_ in followed:
            yield Finding("survey", OK, f"{id_.hex()} ends in {left / 86_400:.1f} days, and its successor is published")
        elif left < SOON_SECONDS:
            remedy = "to go on, publish its successor: `changeling survey extend`"
            yield Finding("survey", DEGRADED, f"{id_.hex()} ends in {left / 86_400:.1f} days", remedy)
        else:
            yield Finding("survey", OK, f"{id_.hex()} ends in {left / 86_400:.0f} days")


def _clock(view: "View", now: UnixSeconds) -> Finding:
    from ..server import MOST_STEP

    kept, remedy = view.kept_time(), "set it right, or `changeling clock confirm`"
    shown = format_instant(UnixSeconds(kept.told // 1000))
    if kept.jumped:
        return Finding("clock", BAD, f"it was {shown} by the store, and a server doubts its clock", remedy)
    if kept.told / 1000 > now + MOST_STEP:
        return Finding("clock", BAD, f"it is behind {shown}", remedy)
    here = format_instant(UnixSeconds(int(now)))
    return Finding("clock", OK, f"it is {here}, after all that the store knows")


def _segments(store: "Store") -> Iterator[Finding]:
    from ..errors import Unwritable
    from ..segments import place_at

    with store.view() as view:
        segments, streams = view.segments(), view.streams()
    size = sum(each.size for each in segments)
    for place in sorted({each.place for each in segments}):
        trouble = place_at(place).trouble()
        remedy = "mount the folder here, or make room" if trouble else ""
        detail = trouble or f"{size / _GIB:.1f} GiB of the log lie in segments, at {place}"
        yield Finding("segments", BAD if trouble else OK, detail, remedy)
        here = [each for each in segments if each.place == place]
        waiting = {each.name: each.size for each in here if each.last > streams[each.stream].counted}
        try:
            there = {each.name: each.size for each in place_at(place).list("")}
        except Unwritable as error:
            yield Finding("segments", BAD, f"{error}", "see that the place can be read from here")
            continue
        lost = {name for name, size in waiting.items() if there.get(name) != size}
        with store.view() as view:  # a server may have joined and deleted some meanwhile
            lost &= {each.name for each in view.segments() if each.place == place}
        for name in sorted(lost):
            what = "is damaged" if name in there else "is gone"
            remedy = 'put it back: "A segment\'s file is lost" in docs/operator.md'
            yield Finding("segments", BAD, f"{name}, which waits to be counted, {what} at {place}", remedy)


def _fold(view: "View", now: UnixSeconds) -> Finding:
    log = view.log_state()
    first, waiting = log.first_unfolded, f"{log.unfolded} of the log wait to be counted"
    if first is None or now - first / 1000 <= LONG_UNFOLDED_SECONDS:
        return Finding("fold", OK, waiting)
    return Finding(
        "fold", BAD, waiting, "see that a server that folds, or `changeling fold`, runs, and what its log says"
    )


def _server(server: str) -> list[Finding]:
    """The troubles that a server names, and how far its clock is from this machine's."""
    import httpx

    try:
        answer = httpx.get(server.rstrip("/") + READY, timeout=10)
        said = answer.json()
        troubles = [Finding(each["name"], each["severity"], each["detail"]) for each in said["troubles"]]
        findings = [Finding("server", said["status"], f"it says that it is {said['status']}"), *troubles]
        off = parsedate_to_datetime(answer.headers["date"]).timestamp() - time.time()
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        detail = f"{server} does not answer as a server does: {error}"
        return [Finding("server", BAD, detail, "see whether it runs there")]
    if abs(off) > MOST_SECONDS_OFF:
        detail = f"the server's is {off:+.0f} seconds from this machine's"
        findings.append(Finding("clock", BAD, detail, "set the wrong one right"))
    return findings
