"""Runs a command line: an error is one clear line on standard error that begins with the program's name.

A defect, which no user can mend, keeps its traceback. `--version` is answered here, as no command's extra is needed
for it.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Protocol

from changeling_protocol import __version__
from changeling_protocol.errors import ChangelingError

VERSION_HINT = "--version, alone, prints the version."
"""For the end of a program's help, which does not list the option: Typer does not know it."""


class Program(Protocol):
    """What Typer builds of commands."""

    def __call__(self, *, args: list[str], prog_name: str) -> object:
        """Runs the command in these words, and ends with SystemExit."""
        ...


def run_program(
    name: str, load: Callable[[], Program], extra_of: Callable[[str], str], arguments: Sequence[str] | None = None
) -> int:
    """Run one command of a program.

    name: the program's, which begins every error.
    load: imports the commands and returns them; may raise ModuleNotFoundError where an extra is missing.
    extra_of: the extra that a command needs, by the command's name ("" for the program itself).
    arguments: the words behind the program's name, by default the process's own.
    Returns the exit code: 0, 1 after an error, 2 after words that cannot be understood.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words == ["--version"]:
        print(f"{name} {__version__}")
        return 0
    try:
        load()(args=words, prog_name=name)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("changeling"):
            raise
        return _failed(name, _missing(extra_of, words))
    except (ChangelingError, ValueError, OSError) as error:
        return _failed(name, str(error))
    except Exception as error:
        sentence = _of_a_library(error)
        if sentence is None:
            raise
        return _failed(name, sentence)
    return 0


def _missing(extra_of: Callable[[str], str], words: list[str]) -> str:
    command = next((word for word in words if not word.startswith("-")), "")
    return f'this needs more than is installed: pip install "changeling[{extra_of(command)}]"'


def _of_a_library(error: Exception) -> str | None:
    """What is told of a store or a server that fails; None for a defect, which keeps its traceback."""
    sqlalchemy, httpx = (sys.modules.get(module) for module in ("sqlalchemy.exc", "httpx"))
    if sqlalchemy is not None and isinstance(error, sqlalchemy.DBAPIError):
        return f"the store cannot be used: {error.orig}"
    if httpx is not None and isinstance(error, httpx.HTTPError):
        return f"the server could not be reached: {error}"
    return None


def _failed(name: str, sentence: str) -> int:
    print(f"{name}: {sentence}", file=sys.stderr)
    return 1
