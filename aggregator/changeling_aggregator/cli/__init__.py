"""The operators' command line, `changeling`. An error is one clear line on standard error, and exit code 1."""

from collections.abc import Sequence

import typer
from changeling_protocol import ProtocolError

from ..errors import AggregatorError


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command, by default the process's own; returns the exit code."""
    from .commands import app

    try:
        app(args=None if arguments is None else list(arguments))
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except (AggregatorError, ProtocolError, ValueError, OSError) as error:
        return _failed(str(error))
    except Exception as error:
        sentence = _of_a_library(error)
        if sentence is None:
            raise
        return _failed(sentence)
    return 0


def _of_a_library(error: Exception) -> str | None:
    """What is told of a store or a server that fails; None for a defect, which keeps its traceback."""
    from httpx import HTTPError
    from sqlalchemy.exc import DBAPIError

    if isinstance(error, DBAPIError):
        return f"the store cannot be used: {error.orig}"
    return f"the server could not be reached: {error}" if isinstance(error, HTTPError) else None


def _failed(sentence: str) -> int:
    typer.echo(f"changeling: {sentence}", err=True)
    return 1
