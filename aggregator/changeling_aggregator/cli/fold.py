"""`changeling fold`: fold a store's log, once or as long as it runs; or fold what is folded again, and compare."""

import signal
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .files import forget_store_key, read_store_key
from .serve import interrupt
from .store import STORE_HELP

if TYPE_CHECKING:
    from ..store import Store


def fold(
    store: Annotated[str, typer.Option(help=f"What holds everything. {STORE_HELP}")],
    store_key_file: Annotated[
        Path | None, typer.Option(help="File with the key that encrypts sealing keys; else $CHANGELING_STORE_KEY.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until interrupted.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Fold the kept log again, and print what differs.")] = False,
    engine: Annotated[
        str, typer.Option(help="What folds: embedded, processes of this machine; or spark, an Apache Spark cluster.")
    ] = "embedded",
    master: Annotated[str | None, typer.Option(help="URL of the Spark cluster's master, as spark://HOST:7077.")] = None,
    shared: Annotated[
        str | None,
        typer.Option(help="For Spark: a folder, or an object store's URL, that this machine and all executors reach."),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(help="For Spark with --follow: the folder or URL where its query has its checkpoint."),
    ] = None,
    executor_memory: Annotated[str, typer.Option(help="For Spark: the memory of each executor's Java process.")] = "1g",
) -> None:
    """Count what is uploaded and not counted yet, beside a server or without one.

    Of several processes on a store one folds, the others stand by. With --check nothing is changed: the log is folded
    into a store that is thrown away; if a node that is not sealed differs, it prints how, and ends with 1.
    """
    from ..fold import EngineOptions, FoldEngine, FoldProcess, engine_plugin
    from ..ingest import Registry
    from ..logs import log_in_json
    from ..server import FoldLoop, GuardedClock
    from ..store import Store

    if follow and check:
        raise ValueError("--check is done once: leave out --follow")
    on_cluster = engine != "embedded"
    if on_cluster and check:
        raise ValueError("--check folds on this machine: leave out --engine")
    plugin = engine_plugin(engine) if on_cluster else None
    if on_cluster != (master is not None) or on_cluster != (shared is not None):
        raise ValueError("--engine spark comes with --master and --shared, and they with it")
    if (checkpoint is not None) != (on_cluster and follow):
        raise ValueError("--engine spark with --follow comes with --checkpoint, and that with them")
    signal.signal(signal.SIGTERM, interrupt)
    at_rest = read_store_key(store_key_file)
    forget_store_key()
    with closing(Store.open(store, at_rest)) as opened:
        with opened.view() as view:
            view.private_keys()  # raises now where the store key is another
            kept, database = view.kept_time(), view.database_time()
        if check:
            _check(opened)
            return
        process: FoldEngine
        if plugin is not None and master is not None and shared is not None:
            process = plugin.start(opened, EngineOptions(master, shared, checkpoint, executor_memory))
        else:
            process = FoldProcess(store, at_rest)
        clock = GuardedClock(kept, database)
        loop = FoldLoop(opened, Registry(opened), clock, process)
        try:
            if not follow:
                done = loop.fold_now()
                refused = ", ".join(f"{count} {reason.value}" for reason, count in sorted(done.refused.items()))
                typer.echo(f"{done.envelopes} envelopes, {done.reports} reports; refused: {refused or 'none'}")
                if clock.doubt is not None:
                    typer.echo(f"closings that are due are not sealed: {clock.doubt.value}")
                return
            log_in_json()
            loop.start()
            typer.echo(f"changeling folds {store}")
            with suppress(KeyboardInterrupt):
                loop.wait()
            typer.echo("changeling has stopped folding")
        finally:
            loop.close()


def _check(store: "Store") -> None:
    """Fold the kept log again, and print what differs; ends with 1 if anything does."""
    from ..fold import check
    from ..opening import OpeningProcesses

    differences = check(store, OpeningProcesses())
    for each in differences:
        typer.echo(f"survey {each.survey.hex()}, {each.what}: {each.stored} stored, {each.again} folded again")
    if differences:
        raise typer.Exit(1)
    typer.echo("folding the kept log again comes to the same")
