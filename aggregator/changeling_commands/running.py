"""Runs a command line: an error is one clear line on standard error that begins with the program's name.

Words that cannot be understood are one, too. A defect, which no user can mend, keeps its traceback. `--version` is
answered here, as no command's extra is needed for it.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from changeling_protocol import ChangelingError, __version__

if TYPE_CHECKING:
    from typer import Typer
    from typer.models import CommandInfo

VERSION_HINT = "--version, alone, prints the version."
"""For the end of a program's help, which does not list the option: Typer does not know it."""


class Program(Protocol):
    """A program as Typer builds it of commands."""

    def __call__(self, *, args: list[str], prog_name: str, standalone_mode: bool) -> object:
        """Runs the command in these words; where it does not stand alone it gives an exit code, or raises."""
        ...


class _Asked(Protocol):
    """Where a command was in its words: Typer's context."""

    @property
    def command_path(self) -> str: ...


@runtime_checkable
class _Misunderstood(Protocol):
    """An exception of Typer about words that it cannot understand."""

    ctx: _Asked | None

    def format_message(self) -> str: ...


def run_program(
    name: str, load: Callable[[], Program], extras: Mapping[str, str], arguments: Sequence[str] | None = None
) -> int:
    """Run one command of a program.

    name: the program's, which begins every error.
    load: imports the commands and returns them; may raise ModuleNotFoundError where an extra is missing.
    extras: the extra that each command needs, by the command's name.
    arguments: the words behind the program's name, by default the process's own.
    Returns the exit code: 0, 1 after an error, 2 after words that cannot be understood.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words == ["--version"]:
        print(f"{name} {__version__}")
        return 0
    try:
        code = load()(args=words, prog_name=name, standalone_mode=False)
    except SystemExit as end:  # Typer's own where whoever reads the output has gone
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("changeling"):
            raise
        if not words or words == ["--help"]:
            print(_bare_help(name, extras))
            return 0 if words else 2
        code = _failed(name, _missing(extras, words))
    except Exception as error:
        if isinstance(error, _Misunderstood):
            return _misunderstood(name, error)
        sentence = _sentence(error)
        if sentence is None:
            raise
        code = _failed(name, sentence)
    return code if isinstance(code, int) else 0


def _missing(extras: Mapping[str, str], words: list[str]) -> str:
    command = next((word for word in words if word in extras), "")
    extra = extras.get(command) or next(iter(extras.values()))
    return f'this needs more than is installed: pip install "changeling[{extra}]", or ".[{extra}]" in a clone'


def _bare_help(name: str, extras: Mapping[str, str]) -> str:
    """The help where no extra is installed: the commands of each."""
    lines = [f"{name} COMMAND ...", "", "The SDK of apps is installed. Its commands come with an extra:"]
    for extra in dict.fromkeys(extras.values()):
        commands = ", ".join(command for command, needed in extras.items() if needed == extra)
        lines.append(f'  pip install "changeling[{extra}]", or ".[{extra}]" in a clone: {commands}')
    return "\n".join([*lines, "", VERSION_HINT])


def _sentence(error: Exception) -> str | None:
    """The sentence that tells a user of an error; None for a defect, which keeps its traceback."""
    if isinstance(error, ChangelingError | ValueError):
        return str(error)
    return _of_the_system(error) if isinstance(error, OSError) else _of_a_library(error)


def _of_the_system(error: OSError) -> str:
    """A sentence on what the operating system refused and on which file, or the sentence that the error already is."""
    if error.filename is None or error.strerror is None:
        return str(error)
    return f"{error.filename}: {error.strerror}"


def _misunderstood(name: str, error: _Misunderstood) -> int:
    message = error.format_message()
    if not message.strip():  # a program without a word has printed its help
        return 2
    words = name if error.ctx is None else error.ctx.command_path
    print(f"{name}: {message.strip().rstrip('.')}; see {words} --help", file=sys.stderr)
    return 2


def _of_a_library(error: Exception) -> str | None:
    """A sentence on a store or a server that fails; None for a defect, which keeps its traceback."""
    sqlalchemy, httpx = (sys.modules.get(module) for module in ("sqlalchemy.exc", "httpx"))
    if sqlalchemy is not None and isinstance(error, sqlalchemy.DBAPIError):
        return f"the store cannot be used: {error.orig}"
    if httpx is not None and isinstance(error, httpx.HTTPError):
        return f"the server could not be reached: {error}"
    return None


def _failed(name: str, sentence: str) -> int:
    print(f"{name}: {sentence}", file=sys.stderr)
    return 1


def show_examples(program: str, app: "Typer", examples: Mapping[str, str]) -> None:
    """Lets the help of each command end with its example.

    examples: by the name of each command, what comes after it. Raises KeyError for a command that has none.
    """
    for name, command in _commands(app):
        command.epilog = "\n\n".join(filter(None, (f"Example: {program} {name} {examples[name]}", command.epilog)))


def _commands(app: "Typer", before: Iterable[str] = ()) -> Iterator[tuple[str, "CommandInfo"]]:
    for command in app.registered_commands:
        own = command.name or (command.callback.__name__.replace("_", "-") if command.callback else "")
        yield " ".join((*before, own)), command
    for group in app.registered_groups:
        if group.typer_instance is not None:
            yield from _commands(group.typer_instance, (*before, str(group.name or group.typer_instance.info.name)))
