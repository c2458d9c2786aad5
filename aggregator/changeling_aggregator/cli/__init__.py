"""The operators' command line, `changeling`. An error is one clear line on standard error, and exit code 1."""

import sys
from collections.abc import Sequence

import httpx
import typer
from changeling_protocol import ProtocolError
from sqlalchemy.exc import DBAPIError

from ..errors import AggregatorError
from . import authority, dev, histogram, keys, release, serve, survey

app = typer.Typer(
    name="changeling",
    help="Publish how people's answers change, without learning who answers what.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(authority.app, name="authority")
app.add_typer(survey.app, name="survey")
app.add_typer(keys.app, name="keys")
app.command()(serve.serve)
app.command()(histogram.histogram)
app.command()(dev.dev)
app.command()(release.release)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command, by default the process's own; returns the exit code."""
    try:
        app(args=None if arguments is None else list(arguments))
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except DBAPIError as error:
        return _failed(f"the store cannot be used: {error.orig}")
    except httpx.HTTPError as error:
        return _failed(f"the server could not be reached: {error}")
    except (AggregatorError, ProtocolError, ValueError, OSError) as error:
        return _failed(str(error))
    return 0


def _failed(sentence: str) -> int:
    print(f"changeling: {sentence}", file=sys.stderr)
    return 1
