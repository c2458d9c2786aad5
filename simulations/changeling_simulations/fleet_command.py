"""`changeling-sim fleet` and `fleet-check`: load for the user's own server, and whether it counted all of it."""

import os
from collections.abc import Iterable
from http import HTTPStatus
from math import ceil
from pathlib import Path
from typing import Annotated, Any

import typer
from changeling_commands import read_count, read_url
from changeling_protocol import SealingKey, Survey
from changeling_protocol.wire import MOST_ENVELOPES_TAKEN
from changeling_reader import ServerAnswered, ServerClient
from changeling_statistics import enough, read_survey
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from .commands import rate_option, recorder
from .fleet import Load, Sent, Truth, TruthRow, Wishes, compared, open_periods, overdue_periods, sealed, send, told


def fleet(
    survey_file: Annotated[Path, typer.Argument(metavar="SURVEY", help="The survey, signed or not.")],
    server: Annotated[
        str, typer.Option(parser=read_url, metavar="URL", help="Your server, where the survey is published.")
    ],
    devices: Annotated[int, typer.Option(parser=read_count, metavar="N", help="How many, as 1e5.")] = "1000",  # type: ignore[assignment]
    rate: Annotated[
        float, typer.Option(min=0, metavar="R", help="Requests a second, on average over the day's curve; 0: at once.")
    ] = 0,
    envelopes: Annotated[
        int, typer.Option(min=1, max=MOST_ENVELOPES_TAKEN, help="Envelopes of a request: more than 1 as from a relay.")
    ] = 1,
    offline: Annotated[float, rate_option("Chance not to report after a period, and to answer for it later.")] = "0",  # type: ignore[assignment]
    duplicates: Annotated[float, rate_option("So many envelopes are sent twice.")] = "0",  # type: ignore[assignment]
    late: Annotated[float, rate_option("So many more come after their grace.")] = "0",  # type: ignore[assignment]
    garbage: Annotated[float, rate_option("So many more must be refused for another reason.")] = "0",  # type: ignore[assignment]
    seed: Annotated[int, typer.Option(min=0, help="Another one makes other devices.")] = 0,
    connections: Annotated[int, typer.Option(min=1, max=4096, help="To the server, at once.")] = 32,
    truth: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write what the server must come to, for `fleet-check`.")
    ] = None,
    compare: Annotated[bool, typer.Option("--compare", help="Then compare it with what the server counted.")] = False,
    i_run_this_server: Annotated[
        bool, typer.Option("--i-run-this-server", help="Needed beyond this machine, with an operator's token.")
    ] = False,
) -> int:
    """Load a server of your own with the sealed envelopes of made-up devices, of which everything is known.

    Each device answers the periods that have closed and can still be answered.
    """
    survey = read_survey(survey_file)
    console = recorder()
    with _client(server) as asked:
        admit(asked, survey, i_run_it=i_run_this_server)
        if compare and _token() is not None:
            asked.fold()  # so that a token that may not is refused before anything is sent
        sealing_key, now = asked.sealing_key()
        if sealing_key is None:
            raise ValueError(f"{server} has no sealing key that is valid now: sign and publish one")
        wishes = Wishes(
            devices,
            heard=open_periods(survey, now, lasting=devices / envelopes / rate if rate else 0.0),
            overdue=overdue_periods(survey, now),
            offline=offline,
            duplicates=duplicates,
            late=late,
            garbage=garbage,
            seed=seed,
        )
        load = _sealed(survey, sealing_key, wishes)
        if truth is not None:  # before anything is sent: it holds also where the sending ends early
            load.truth.write(truth)
            console.print(f"wrote {truth}")
        sent = _sent(load, asked, rate, envelopes, connections)
        _print_sent(console, load, sent)
        rows = told(load.truth.told, sent.told, "told")
        if compare:
            rows += _compared(asked, survey, load.truth)
        return _print_rows(console, rows, sent.unsure)


def fleet_check(
    truth: Annotated[Path, typer.Argument(metavar="TRUTH", help="What `changeling-sim fleet --truth` wrote.")],
    server: Annotated[str, typer.Option(parser=read_url, metavar="URL", help="The server that was loaded.")],
) -> int:
    """Compare what a fleet's envelopes must come to with what a server shows; the exit code is 1 where they differ.

    With an operator's token in $CHANGELING_TOKEN refusals are compared, too, and the server folds first.
    """
    expected = Truth.read(truth)
    with _client(server) as asked:
        return _print_rows(recorder(), _compared(asked, _published(asked, expected.survey), expected))


def admit(client: ServerClient, survey: Survey, *, i_run_it: bool) -> None:
    """Pass where a server may be sent a fleet's envelopes: it is the user's own, and nobody answered there.

    Whether anything is counted that is not shown, or waits to be counted, a server says to an operator's token alone.
    i_run_it: whether the user says that it is. Raises ValueError, which says what is missing.
    """
    if not client.is_here and not i_run_it:
        raise ValueError(
            f"{client.url} is another machine: a fleet is load, and made-up answers; if the server is yours, say "
            "--i-run-this-server"
        )
    _published(client, survey.id.hex())
    status = _status(client, survey.id.hex())
    if not client.is_here and "refused" not in status:
        raise ValueError(
            "beyond this machine a server is sent a fleet only by who operates it: show a token with the scopes "
            "read and fold"
        )
    if status.get("any_taken") or any(closing["heard"] for closing in status["closings"]):
        raise ValueError(
            f"survey {survey.id.hex()} has answers already, which a fleet would spoil: sign one for the rehearsal"
        )


def _published(client: ServerClient, survey: str) -> Survey:
    try:
        return client.survey(survey)
    except ServerAnswered as answered:
        if answered.status != HTTPStatus.NOT_FOUND:
            raise
        if answered.code is None:
            raise ValueError(f"{client.url} has no surveys: is that the server's address?") from None
        raise ValueError(f"survey {survey} is not published on {client.url}: publish it there first") from None


def _status(client: ServerClient, survey: str) -> dict[str, Any]:
    try:
        return client.status(survey)
    except ServerAnswered as answered:
        if answered.status != HTTPStatus.NOT_FOUND:
            raise
        sentence = f"{client.url} has the survey and no status of it, as a relay: name the server behind it"
        raise ValueError(sentence) from None


def _client(server: str) -> ServerClient:
    """A client with the operator's token, if there is one; a fold to the log's end is answered once it is there."""
    return ServerClient(server, token=_token(), timeout=600)


def _token() -> str | None:
    return os.environ.get("CHANGELING_TOKEN", "").strip() or None


def _sealed(survey: Survey, key: SealingKey, wishes: Wishes) -> Load:
    terminal = Console(stderr=True)
    with Progress(console=terminal, transient=True, disable=not terminal.is_terminal) as progress:
        task = progress.add_task("sealing", total=wishes.devices)
        return sealed(survey, key, wishes, lambda done: progress.update(task, completed=done))


def _sent(load: Load, client: ServerClient, rate: float, envelopes: int, connections: int) -> Sent:
    """Sends all of it; where a rate is given, the time that it spans is stretched so that it is the mean."""
    seconds_of_one = 0.0
    if rate:
        span = float(load.due[-1] - load.due[0])
        seconds_of_one = len(load) / envelopes / rate / span if span else 0.0
    requests, terminal = load.requests(envelopes), Console(stderr=True)
    with Progress(console=terminal, transient=True, disable=not terminal.is_terminal) as progress:
        task = progress.add_task("sending", total=ceil(len(load) / envelopes))
        return send(
            requests,
            client.url,
            _token(),
            connections=connections,
            seconds_of_one=seconds_of_one,
            done=lambda taken: progress.update(task, completed=taken),
        )


def _compared(client: ServerClient, survey: Survey, truth: Truth) -> list[TruthRow]:
    if _token() is not None:
        client.fold()
    id_ = survey.id.hex()
    status = _status(client, id_)
    reported = {survey.plan.tracks[node["track"]].question for node in status["nodes"]}
    if not reported:
        recorder().print(
            f"Nothing is shown yet: a closing is once each of its nodes has {enough(survey.minimum):,} "
            "reports, or when its grace is over. Compare again then."
        )
    names = [each.name for place, each in enumerate(survey.questions) if place in reported]
    return compared(truth, survey, status, {name: client.series(id_, question=name) for name in names})


def _print_sent(console: Console, load: Load, sent: Sent) -> None:
    rate = sent.requests / max(sent.seconds, 1e-9)
    half, most = (1000 * sent.latency(share) for share in (0.5, 0.99))
    console.print(
        f"{len(load):,} envelopes in {sent.requests:,} requests, {rate:,.0f} a second; answered within {half:.1f} ms "
        f"(half of them), {most:.1f} ms (99%); asked to wait {sent.turned_away:,} times, sent again {sent.unsure:,}"
    )


def _print_rows(console: Console, rows: Iterable[TruthRow], unsure: int = 0) -> int:
    """Prints them; returns the exit code."""
    table = Table(title="What the fleet must come to, and what the server says", title_justify="left")
    table.add_column("")
    for column in ("expected", "found", ""):
        table.add_column(column, justify="right")
    agree = True
    for row in rows:
        agree &= row.agrees
        table.add_row(
            row.what, f"{row.expected:,.12g}", f"{row.found:,.12g}", "" if row.agrees else Text("DIFFERS", "bold red")
        )
    if table.row_count:
        console.print(table)
        console.print("all agree" if agree else Text("not all agree", "bold red"))
    if unsure and not agree:
        console.print(f"{unsure:,} requests were sent again as their answers were lost: these may be duplicates more")
    return 0 if agree else 1
