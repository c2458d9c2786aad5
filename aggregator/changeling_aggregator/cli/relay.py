"""`changeling relay`: stands before a server so that it cannot tell devices apart, until it is told to stop."""

import signal
from pathlib import Path
from typing import Annotated

import typer
from changeling_protocol import ID_BYTES, SurveyId
from changeling_statistics import parse_duration

from .files import read_public_key
from .remote import TokenFile, token_in
from .serve import interrupt

_MEBIBYTE = 2**20


def relay(
    upstream: Annotated[str, typer.Option(help="The server's URL; HTTPS, or on loopback.")],
    authority: Annotated[
        list[Path], typer.Option(help="Public key whose surveys and keys are served; again for the next one.")
    ],
    spool: Annotated[Path, typer.Option(help="The folder for what waits, and for copies; made if missing.")],
    url: Annotated[
        str | None, typer.Option(help="This relay's URL as surveys declare it: all that do are relayed.")
    ] = None,
    survey: Annotated[
        list[str] | None, typer.Option(help="Instead of --url: the id of a survey to relay; again for more.")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="How many envelopes of a survey go together.")] = 1000,
    wait: Annotated[str, typer.Option(help="How long a round is; batches go between rounds.")] = "10m",
    most_wait: Annotated[str, typer.Option(help="After so long fewer than a batch go.")] = "6h",
    room: Annotated[int, typer.Option(min=1, help="MiB on disk for each survey's envelopes.")] = 256,
    host: Annotated[str, typer.Option(help="Address to listen on. Beyond loopback, put TLS in front.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8081,
    token_file: TokenFile = None,
    proxy: Annotated[
        list[str] | None,
        typer.Option(help="Address or network of a proxy that is believed whom it speaks for; again for more."),
    ] = None,
    rate: Annotated[
        int, typer.Option(min=0, help="Requests a second from one network, on average; 0 for any number.")
    ] = 50,
) -> None:
    """Run a relay: sealed uploads are kept, shuffled and forwarded in batches, without the addresses they came from.

    It serves the server's surveys, one of its sealing keys, and the time. Whoever runs it must not be who runs the
    server. It prints its URL and runs until interrupted; what waits then stays in its folder. A server that asks
    uploads for a token is shown the relay's own.
    """
    from ..relay import Batching, Relay, RelaySettings, Upstream, make_app
    from ..server import Front, listen, make_server

    if (not url) == (not survey):
        raise ValueError("name either this relay's --url, or each --survey that it relays")
    front = Front(proxy or ())
    settings = RelaySettings(
        [read_public_key(file) for file in authority],
        Batching(batch, parse_duration(wait), parse_duration(most_wait)),
        None if not survey else frozenset(_survey_id(each) for each in survey),
        url or "",
        room * _MEBIBYTE,
        rate,
    )
    relaying = Relay(spool, Upstream(upstream, token_in(token_file)), settings)
    listening, here = listen(host, port)
    server = make_server(make_app(relaying), front)
    signal.signal(signal.SIGTERM, interrupt)
    typer.echo(f"changeling relays to {upstream} and listens on {here}")
    try:
        server.run(sockets=[listening])
    except KeyboardInterrupt:  # raised once more by uvicorn, after it has drained
        typer.echo("the relay has stopped; what waits is kept")


def _survey_id(text: str) -> SurveyId:
    try:
        id_ = bytes.fromhex(text)
    except ValueError:
        id_ = b""
    if len(id_) != ID_BYTES:
        raise ValueError(f"a survey's id is {2 * ID_BYTES} hexadecimal digits, got {text!r}")
    return SurveyId(id_)
