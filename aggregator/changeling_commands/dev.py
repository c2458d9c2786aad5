"""`changeling dev`: a server to play with, and devices of it where they are wished for."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer


def dev(
    answers: Annotated[str, typer.Option(help="The answers, with commas between them.")] = "tea,coffee,neither",
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port on loopback; by default the last one, or a free one.")
    ] = None,
    store: Annotated[
        Path | None, typer.Option(help="Folder that keeps everything, to go on with; by default it is thrown away.")
    ] = None,
    fleet: Annotated[
        int,
        typer.Option(min=0, max=2000, help="So many simulated devices, each a client of its own; 200 is a picture."),
    ] = 0,
) -> None:
    """Run a server on loopback with a survey of ten-second periods, and print its estimates.

    It makes an authority, a sealing key and a survey, and prints a piece of Python that is a device. Started again with
    the same folder and answers it goes on with the same survey while that lasts, else with a new one of the same
    authority. With --fleet, devices live and report by themselves, and there is a page to look at. The odds are for
    development only.
    """
    from changeling_aggregator.cli.dev import develop

    from .fleet import living

    if fleet and store is not None:
        raise ValueError("a fleet is thrown away at the end: choose one of --fleet and --store")
    develop(answers, port, store, partial(living, fleet) if fleet else None)
