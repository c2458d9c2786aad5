"""`changeling doctor`: looks at a store and at what is around it, and says what to do."""

import time
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from changeling_protocol import UnixSeconds
from changeling_protocol.wire import READY

from .files import read_store_key
from .settings import SettingsCommand
from .store import STORE_HELP

_MOST_SECONDS_OFF = 5.0


class DoctorCommand(SettingsCommand):
    """Takes a server's settings, and leaves those alone that it has no use for."""

    takes_others = True


def doctor(
    store: Annotated[str, typer.Option(help=f"What to look at; servers may be running on it. {STORE_HELP}")],
    store_key_file: Annotated[
        Path | None, typer.Option(help="File with the key that encrypts sealing keys; else $CHANGELING_STORE_KEY.")
    ] = None,
    certificate_key: Annotated[
        Path | None, typer.Option(help="PEM file with the certificate's private key, to see who may read it.")
    ] = None,
    server: Annotated[str | None, typer.Option(help="The URL of a server to ask as well.")] = None,
    settings: Annotated[Path | None, typer.Option(help="The server's TOML file; what it names is looked at.")] = None,
) -> int:
    """Look whether a server can go on: store, versions, keys, clock, disk, permissions, surveys that end soon.

    A line for each finding, with what to do. Nothing is changed. The exit code is 1 if something is wrong.
    """
    from ..server.examining import Finding, examine
    from ..server.health import Severity

    at_rest, unreadable = None, None
    try:
        at_rest = read_store_key(store_key_file)
    except (ValueError, OSError) as error:
        unreadable = Finding("store-key", Severity.BAD, f"{error}", "name the file that the server reads")
    secrets = [each for each in (store_key_file, certificate_key) if each is not None]
    findings = list(examine(store, at_rest, secrets, UnixSeconds(time.time())))
    if settings is not None and settings.stat().st_mode & 0o022:
        findings.append(Finding("permissions", Severity.BAD, f"others may change {settings}", f"chmod go-w {settings}"))
    if unreadable is not None:
        findings.append(unreadable)
    if server is not None:
        findings += [
            Finding(name, Severity(severity), detail, remedy) for name, severity, detail, remedy in _asked(server)
        ]
    for finding in findings:
        remedy = f" -> {finding.remedy}" if finding.remedy else ""
        typer.echo(f"{finding.severity.value:9}{finding.name}: {finding.detail}{remedy}")
    return int(any(finding.severity is Severity.BAD for finding in findings))


def _asked(server: str) -> list[tuple[str, str, str, str]]:
    """What a server says of itself, and how far its clock is from this machine's."""
    import httpx

    try:
        answer = httpx.get(server.rstrip("/") + READY, timeout=10)
        told: dict[str, Any] = answer.json()
        rows = [(each["name"], each["severity"], each["detail"], "") for each in told["troubles"]]
        date = parsedate_to_datetime(answer.headers["date"]).timestamp()
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        return [("server", "bad", f"{server} does not answer as a server does: {error}", "see whether it runs there")]
    off = date - time.time()
    if abs(off) > _MOST_SECONDS_OFF:
        rows.append(
            ("clock", "bad", f"the server's is {off:+.0f} seconds from this machine's", "set the wrong one right")
        )
    return [("server", told["status"], f"it says that it is {told['status']}", ""), *rows]
