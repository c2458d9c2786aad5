"""`changeling serve`, `fold` and `relay`: the programs that run until they are told to stop."""

import gc
import logging
import signal
import socket
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from changeling_protocol import ID_BYTES, SurveyId, UnixSeconds, authority_key, is_signed_by, parse_duration
from changeling_protocol.wire import is_loopback

from .access import (
    StoreKeyFile,
    TokenFile,
    existing_store,
    forget_store_key,
    interrupt,
    read_public_key,
    read_store_key,
    token_in,
)
from .store import SEGMENTS_HELP, STORE_HELP

if TYPE_CHECKING:
    import uvicorn
    from prometheus_client import CollectorRegistry

    from ..server import FoldLoop, GuardedClock, Service
    from ..store import Store

_log = logging.getLogger("changeling")


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


def checked_proxies(proxies: list[str] | None) -> list[str] | None:
    """Addresses, or networks of them."""
    for each in proxies or ():
        ip_network(each, strict=False)
    return proxies


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


_Host = Annotated[str, typer.Option(help="Address to listen on. Beyond loopback, put TLS in front.")]
_Proxies = Annotated[
    list[str] | None,
    typer.Option(
        help="Address or network of a proxy that is believed whom it speaks for; again for more.",
        callback=checked_proxies,
    ),
]
_Rate = Annotated[int, typer.Option(min=0, help="Requests a second from one network, on average; 0 for any number.")]
_Metrics = Annotated[
    str | None,
    typer.Option(help="HOST:PORT on which Prometheus asks, as 127.0.0.1:9090.", callback=checked_address),
]


def serve(
    store: Annotated[str, typer.Option(help=f"What holds everything; made if missing. {STORE_HELP}")],
    authority: Annotated[
        list[Path],
        typer.Option(
            help="Public key whose surveys and keys are taken; again for the next one.", callback=checked_authority
        ),
    ],
    host: _Host = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8080,
    proxy: _Proxies = None,
    certificate: Annotated[Path | None, typer.Option(help="PEM file, for TLS without a proxy.")] = None,
    certificate_key: Annotated[
        Path | None, typer.Option(help="PEM file with the certificate's private key.", callback=checked_front)
    ] = None,
    rate: _Rate = 50,
    envelopes_a_day: Annotated[
        int, typer.Option(min=0, help="Envelopes a day from one network without an upload token; 0 for any number.")
    ] = 250_000,
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
    most_store: Annotated[
        float | None,
        typer.Option(
            min=0, help="GiB of the store with which no more is taken; else nine tenths of the free disk, 64 elsewhere."
        ),
    ] = None,
    most_waiting: Annotated[
        int | None,
        typer.Option(
            min=1, help="Requests waiting to be counted with which no more is taken; else one for each KiB of that."
        ),
    ] = None,
    fold: Annotated[
        bool, typer.Option("--fold/--no-fold", help="Whether to count uploads here, or leave it to `changeling fold`.")
    ] = True,
    metrics_address: _Metrics = None,
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
        GuardedClock,
        MovableClock,
        ServerSettings,
        Service,
        listen,
        make_app,
        make_server,
        registry_of,
    )
    from ..store import Store

    del settings  # read by SettingsCommand
    keys = [read_public_key(file) for file in authority]
    admitting = None if admission is None else import_from_string(admission)
    at_rest = read_store_key(store_key_file)
    forget_store_key()
    listening, url = listen(host, port, secure=certificate is not None)
    with listening, closing(Store.open(store, at_rest)) as opened:
        with opened.transaction() as writing:
            encrypted = writing.encrypt_keys(at_rest) > 0
        opened.forget_overwritten(changed=encrypted)
        with opened.view() as view:
            view.private_keys()  # raises now, and not at the first fold, where the store key is another
            last, kept = view.log_state().arrival, view.kept_time()
        log_in_json()
        clock: Clock = MovableClock(UnixSeconds(last / 1000)) if movable_clock else GuardedClock(kept, kept.database)
        how = ServerSettings(
            keys,
            clock,
            uploads_need_token=uploads_need_token,
            admission=admitting,
            requests_a_second=rate,
            envelopes_a_day=envelopes_a_day,
            most_store_bytes=None if most_store is None else int(most_store * 2**30),
            most_unfolded=most_waiting,
            folds=fold,
            segments=segments,
        )
        service = Service(opened, how, FoldProcess(store, at_rest) if fold else None)
        tell_of_strangers(service, keys)
        server = make_server(make_app(service), proxy or (), certificate, certificate_key)
        without = "" if service.registry.tokens else "; nobody may publish before there is a token"
        with _telling(registry_of(service), metrics_address):
            _run(server, listening, f"changeling listens on {url}{without}")
    typer.echo("changeling has stopped")


def tell_of_strangers(service: "Service", authority: Sequence[bytes]) -> None:
    """Log how many surveys of the store no given authority has signed, if any."""
    surveys = service.registry.surveys.values()
    if strange := sum(not is_signed_by(each.signed, authority) for each in surveys):
        _log.warning(
            "no --authority that is given signed %d of the store's %d surveys: they are run, but what theirs signs "
            "from now on is refused: name it as well",
            strange,
            len(surveys),
        )


def _telling(registry: "CollectorRegistry", address: str | None) -> AbstractContextManager[object]:
    """Tell Prometheus figures on an address, HOST:PORT, if one is given."""
    from ..server import telling

    return nullcontext() if address is None else telling(registry, *host_and_port(address))


def _run(server: "uvicorn.Server", listening: socket.socket, said: str) -> None:
    """Say that a server listens, and serve until a signal ends that."""
    with suppress(KeyboardInterrupt):  # raised once more by uvicorn, after it has drained
        signal.signal(signal.SIGTERM, interrupt)
        typer.echo(said)
        gc.freeze()  # all that is there stays: to look through it again would stop uploads for tens of ms
        server.run(sockets=[listening])


def fold(
    store: Annotated[str, typer.Option(help=f"What holds everything. {STORE_HELP}")],
    store_key_file: StoreKeyFile = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until interrupted.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Fold the kept log again, and say what differs.")] = False,
    engine: Annotated[
        str, typer.Option(help="What folds: embedded, processes of this machine; or spark, an Apache Spark cluster.")
    ] = "embedded",
    master: Annotated[str | None, typer.Option(help="URL of the Spark cluster's master, as spark://HOST:7077.")] = None,
    shared: Annotated[
        str | None,
        typer.Option(help="For Spark: a folder, or an object store's URL, that this machine and all executors reach."),
    ] = None,
    executor_memory: Annotated[str, typer.Option(help="For Spark: the memory of each executor's Java process.")] = "1g",
    conf: Annotated[
        list[str] | None,
        typer.Option(help="For Spark: a setting of its own, as NAME=VALUE; several times for several."),
    ] = None,
) -> None:
    """Count what is uploaded and not counted yet, beside a server or without one.

    Of several processes on a store one folds, the others stand by. If nothing used the store for hours, the clock is
    watched for ten minutes before what is due is sealed; to end it meanwhile leaves that to another time.

    With --check nothing is changed: the log is counted again, in memory; if nodes that are not sealed differ, it
    prints how many of each survey, and ends with 1. After a restore, which has no log, they do until they are sealed.
    """
    from ..fold import EngineOptions, FoldEngine, FoldProcess, engine_plugin
    from ..ingest import Registry
    from ..logs import log_in_json
    from ..server import FoldLoop, GuardedClock

    if follow and check:
        raise ValueError("--check is done once: leave out --follow")
    on_cluster = engine != "embedded"
    if on_cluster and check:
        raise ValueError("--check folds on this machine: leave out --engine")
    plugin = engine_plugin(engine) if on_cluster else None
    if conf and not on_cluster:
        raise ValueError("--conf is for Spark: give --engine spark as well")
    if on_cluster != (master is not None) or on_cluster != (shared is not None):
        raise ValueError("--engine spark comes with --master and --shared, and they with it")
    signal.signal(signal.SIGTERM, interrupt)
    at_rest = read_store_key(store_key_file)
    forget_store_key()
    with closing(existing_store(store, at_rest)) as opened:
        with opened.view() as view:
            view.private_keys()  # raises now where the store key is another
            kept = view.kept_time()
        if check:
            _check(opened)
            return
        process: FoldEngine
        if plugin is not None and master is not None and shared is not None:
            options = EngineOptions(master, shared, executor_memory, tuple(conf or ()))
            process = plugin.start(opened, options)
        else:
            process = FoldProcess(store, at_rest)
        if follow:
            log_in_json()
        clock = GuardedClock(kept, kept.database)
        loop = FoldLoop(opened, Registry(opened), clock, process)
        try:
            if not follow:
                _fold_once(loop, clock)
                return
            loop.start()
            typer.echo(f"changeling folds {store}")
            with suppress(KeyboardInterrupt):
                loop.wait()
            typer.echo("changeling has stopped folding")
        finally:
            loop.close()


def _fold_once(loop: "FoldLoop", clock: "GuardedClock") -> None:
    """Count, and seal what is due, if need be again once the clock was watched; say what was done and what was left."""
    from ..server import Doubt

    watched = clock.doubt is Doubt.STARTED
    done = loop.fold_now()
    if watched:
        typer.echo("closings that are due are sealed once the clock was watched for ten minutes")
        while clock.doubt is Doubt.STARTED:
            time.sleep(0.5)
        done += loop.fold_now()
    refused = ", ".join(f"{count} {reason.value}" for reason, count in sorted(done.refused.items()))
    typer.echo(f"{done.envelopes} envelopes, {done.reports} reports; refused: {refused or 'none'}")
    if clock.doubt is not None:
        typer.echo(f"closings that are due are not sealed, and what came since may wait: {clock.doubt.value}")


def _check(store: "Store") -> None:
    """Fold the kept log again, and print a line for each survey that differs; ends with 1 if one does."""
    from ..fold import check
    from ..opening import OpeningProcesses

    differences = check(store, OpeningProcesses())
    for each in differences:
        by = "fewer reports than its minimum" if each.most is None else f"{each.most:,} at most"
        where = f"{each.nodes:,} nodes and {each.closings:,} closings differ"
        typer.echo(f"survey {each.survey.hex()}: {where} from what is stored, by {by}")
    if differences:
        raise typer.Exit(1)
    typer.echo("folding the kept log again comes to the same")


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
    host: _Host = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8081,
    token_file: TokenFile = None,
    proxy: _Proxies = None,
    rate: _Rate = 50,
    metrics_address: _Metrics = None,
    settings: Annotated[
        Path | None, typer.Option(help="TOML file with any of these; so may $CHANGELING_UPSTREAM, $CHANGELING_PORT….")
    ] = None,
) -> None:
    """Run a relay: sealed uploads are kept, shuffled and forwarded in batches, without the addresses they came from.

    It serves the server's surveys, one of its sealing keys, and the time. Whoever runs it must not be who runs the
    server. It prints its URL and runs until interrupted; what waits then stays in its folder. A server that asks
    uploads for a token is shown the relay's own.
    """
    from ..logs import log_in_json
    from ..relay import Batching, Relay, RelaySettings, Upstream, make_app, registry_of
    from ..server import listen, make_server

    del settings  # read by SettingsCommand
    if not is_loopback(host) and not proxy:
        raise ValueError(f"on {host} uploads could be read on the way: name the --proxy with TLS before the relay")
    if (not url) == (not survey):
        raise ValueError("name either this relay's --url, or each --survey that it relays")
    how = RelaySettings(
        [read_public_key(file) for file in authority],
        Batching(batch, parse_duration(wait), parse_duration(most_wait)),
        None if not survey else frozenset(_survey_id(each) for each in survey),
        url or "",
        room * _MEBIBYTE,
        rate,
    )
    server_behind = Upstream(upstream, token_in(token_file))
    log_in_json()
    relaying = Relay(spool, server_behind, how)
    listening, here = listen(host, port)
    server = make_server(make_app(relaying), proxy or ())
    with _telling(registry_of(relaying), metrics_address):
        _run(server, listening, f"changeling relays to {upstream} and listens on {here}")
    typer.echo("the relay has stopped; what waits is kept")


def _survey_id(text: str) -> SurveyId:
    try:
        id_ = bytes.fromhex(text)
    except ValueError:
        id_ = b""
    if len(id_) != ID_BYTES:
        raise ValueError(f"a survey's id is {2 * ID_BYTES} hexadecimal digits, got {text!r}")
    return SurveyId(id_)
