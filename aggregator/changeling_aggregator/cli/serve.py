"""`changeling serve`: the aggregation server, until it is told to stop."""

import gc
import signal
from contextlib import ExitStack, closing
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from changeling_protocol import UnixSeconds, authority_key
from changeling_protocol.wire import is_loopback

from .files import forget_store_key, read_public_key, read_store_key
from .segments import SEGMENTS_HELP
from .store import STORE_HELP


def checked_authority(files: list[Path]) -> list[Path]:
    """Files with public keys that can sign."""
    for file in files:
        authority_key(read_public_key(file))
    return files


def checked_store_key(file: Path | None) -> Path | None:
    """A file, or the environment, with a store key."""
    read_store_key(file)
    return file


def checked_clock(context: typer.Context, movable: bool) -> bool:
    """A movable clock is for loopback."""
    host = context.params.get("host")
    if movable and host is not None and not is_loopback(host):
        raise ValueError(f"a movable clock is for loopback only, not for {host}")
    return movable


def checked_front(context: typer.Context, key: Path | None) -> Path | None:
    """The certificate's key, if there is a certificate; beyond loopback there is one, or a proxy that has one."""
    host, certificate = context.params.get("host"), context.params.get("certificate")
    if (certificate is None) != (key is None):
        raise ValueError("give both --certificate and --certificate-key, or neither")
    if host is not None and not is_loopback(host) and not context.params.get("proxy") and certificate is None:
        raise ValueError(
            f"on {host} tokens could be read on the way: give a --certificate, or name the --proxy before the server"
        )
    return key


def checked_admission(name: str | None) -> str | None:
    """The name of something that can be imported."""
    from uvicorn.importer import ImportFromStringError, import_from_string

    try:
        if name is not None:
            import_from_string(name)
    except ImportFromStringError as error:
        raise ValueError(f"--admission {name}: {error}") from error
    return name


def checked_segments(place: str | None) -> str | None:
    """A folder, or an object store that segments can be kept in, with the libraries for it."""
    from ..segments import checked_place

    return None if place is None else checked_place(place)


def checked_address(address: str | None) -> str | None:
    """HOST:PORT."""
    if address is not None:
        host_and_port(address)
    return address


def host_and_port(address: str) -> tuple[str, int]:
    """The two parts of HOST:PORT; an IPv6 address has brackets. Raises ValueError."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"a metrics address is HOST:PORT, as 127.0.0.1:9090, and not {address!r}")
    return host.strip("[]"), int(port)


def serve(
    store: Annotated[str, typer.Option(help=f"What holds everything; made if missing. {STORE_HELP}")],
    authority: Annotated[
        list[Path],
        typer.Option(
            help="Public key whose surveys and keys are taken; again for the next one.", callback=checked_authority
        ),
    ],
    host: Annotated[str, typer.Option(help="Address to listen on. Beyond loopback, put TLS in front.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8080,
    proxy: Annotated[
        list[str] | None,
        typer.Option(help="Address or network of a proxy that is believed whom it speaks for; again for more."),
    ] = None,
    certificate: Annotated[Path | None, typer.Option(help="PEM file, for TLS without a proxy.")] = None,
    certificate_key: Annotated[
        Path | None, typer.Option(help="PEM file with the certificate's private key.", callback=checked_front)
    ] = None,
    rate: Annotated[
        int, typer.Option(min=0, help="Requests a second from one network, on average; 0 for any number.")
    ] = 50,
    uploads_need_token: Annotated[
        bool, typer.Option("--uploads-need-token", help="Take uploads only with an app's token.")
    ] = False,
    admission: Annotated[
        str | None,
        typer.Option(help="MODULE:FUNCTION that is asked whether to admit an upload.", callback=checked_admission),
    ] = None,
    store_key_file: Annotated[
        Path | None,
        typer.Option(
            help="File with the key that encrypts sealing keys; else $CHANGELING_STORE_KEY.", callback=checked_store_key
        ),
    ] = None,
    segments: Annotated[
        str | None, typer.Option(help=f"Where uploads lie. {SEGMENTS_HELP}", callback=checked_segments)
    ] = None,
    fold: Annotated[
        bool, typer.Option("--fold/--no-fold", help="Whether to count uploads here, or leave it to `changeling fold`.")
    ] = True,
    metrics_address: Annotated[
        str | None,
        typer.Option(help="HOST:PORT on which Prometheus asks, as 127.0.0.1:9090.", callback=checked_address),
    ] = None,
    movable_clock: Annotated[
        bool,
        typer.Option(
            "--movable-clock",
            help="For demos on loopback: a clock that stands until it is moved.",
            callback=checked_clock,
        ),
    ] = False,
    settings: Annotated[
        Path | None, typer.Option(help="TOML file with any of these; so may $CHANGELING_STORE, $CHANGELING_PORT….")
    ] = None,
) -> None:
    """Run the aggregation server: surveys and sealing keys out, sealed uploads in, histograms out.

    It prints its URL and serves until interrupted; then it ends once what it took in is on disk. What is not open to
    all asks for a token of `changeling token new`. Beyond loopback it needs a certificate, or a proxy that has one.
    With a store key, private sealing keys are encrypted in the store. A movable clock starts at Unix time 0, or at the
    store's latest arrival.
    """
    from uvicorn.importer import import_from_string

    from ..fold import FoldProcess
    from ..logs import log_in_json
    from ..server import (
        Clock,
        Front,
        GuardedClock,
        MovableClock,
        ServerSettings,
        Service,
        listen,
        make_app,
        make_server,
        telling,
    )
    from ..store import Store

    del settings  # read by SettingsCommand
    keys = [read_public_key(file) for file in authority]
    front = Front(proxy or (), certificate, certificate_key)
    admitting = None if admission is None else import_from_string(admission)
    at_rest = read_store_key(store_key_file)
    forget_store_key()
    listening, url = listen(host, port, secure=certificate is not None)
    with listening, closing(Store.open(store, at_rest)) as opened, ExitStack() as until_the_end:
        with opened.transaction() as writing:
            encrypted = writing.encrypt_keys_in_clear()
        opened.forget_overwritten(changed=encrypted)
        with opened.view() as view:
            view.private_keys()  # raises now, and not at the first fold, where the store key is another
            last, kept, database = view.latest_arrival(), view.kept_time(), view.database_time()
        clock: Clock = MovableClock(UnixSeconds(last / 1000)) if movable_clock else GuardedClock(kept, database)
        how = ServerSettings(
            keys,
            clock,
            uploads_need_token=uploads_need_token,
            admission=admitting,
            requests_a_second=rate,
            folds=fold,
            segments=segments,
        )
        service = Service(opened, how, FoldProcess(store, at_rest) if fold else None)
        server = make_server(make_app(service), front)
        log_in_json()
        if metrics_address is not None:
            until_the_end.enter_context(telling(service, *host_and_port(metrics_address)))
        signal.signal(signal.SIGTERM, interrupt)
        without = "" if service.registry.tokens else "; nobody may publish before there is a token"
        typer.echo(f"changeling listens on {url}{without}")
        gc.freeze()  # all that is there stays: to look through it again and again would stop uploads for tens of ms
        try:
            server.run(sockets=[listening])
        except KeyboardInterrupt:  # raised once more by uvicorn, after it has drained
            typer.echo("changeling has stopped")


def interrupt(_: int, __: FrameType | None) -> None:
    """Let a signal end this process as Ctrl-C does."""
    raise KeyboardInterrupt
