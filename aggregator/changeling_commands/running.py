"""The commands of `changeling` in one table, and running a command line: an error is one clear line.

Of the commands of a program one alone is imported, the one that the words ask for; of the others its help has a line,
whichever extra is installed. An error goes to standard error and begins with the program's name; words that cannot be
understood are one, too. A defect, which no user can mend, keeps its traceback. `--version` is answered here, as no
command's extra is needed for it.
"""

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from typer import Typer

VERSION_HINT = "--version, alone, prints the version."
"""For the end of a program's help, which does not list the option: Typer does not know it."""


@dataclass(frozen=True, slots=True)
class ListedCommand:
    """A command of a program, or a group of commands, as it is known before its module is imported.

    at: MODULE:NAME of its function, or of the `Typer` of a group. line: the first paragraph of its help. extra: that
    brings what it needs. panel: the heading that it stands under. made_by: MODULE:NAME of the class of the command
    where that is not Typer's own. epilog: MODULE:NAME of more words for the end of its help.
    """

    at: str
    line: str
    extra: str
    panel: str | None = None
    made_by: str | None = None
    epilog: str | None = None


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A program of several commands. name: as it is typed. about: its help. commands: by their names. examples: what
    comes after the name of each command, those of groups included, in its example.
    """

    name: str
    about: str
    commands: Mapping[str, ListedCommand]
    examples: Mapping[str, str]

    def typer(self, asked: Collection[str]) -> "Typer":
        """The program as Typer builds it, with these commands whole, and of each other one its line of help.

        Raises ModuleNotFoundError where a command needs an extra that is not installed, KeyError for one without an
        example.
        """
        import typer

        app = typer.Typer(
            help=self.about,
            epilog=VERSION_HINT,
            no_args_is_help=True,
            add_completion=False,
            pretty_exceptions_enable=False,
        )
        for name, listed in self.commands.items():
            if name in asked:
                self._add(app, name, listed)
            else:
                app.command(name, help=listed.line, rich_help_panel=listed.panel)(_not_asked)
        return app

    def _add(self, app: "Typer", name: str, listed: ListedCommand) -> None:
        from typer import Typer

        found = resolve_name(listed.at)
        needs = rf'Part of "changeling\[{listed.extra}]".'
        if isinstance(found, Typer):
            for command in found.registered_commands:
                own = f"{name} {command.name or getattr(command.callback, '__name__', '').replace('_', '-')}"
                command.epilog = self._example(own)
            app.add_typer(found, name=name, rich_help_panel=listed.panel, epilog=needs)
            return
        more = [] if listed.epilog is None else [resolve_name(listed.epilog)]
        made_by = None if listed.made_by is None else resolve_name(listed.made_by)
        epilog = "\n\n".join([self._example(name), *more, needs])
        app.command(name, cls=made_by, rich_help_panel=listed.panel, epilog=epilog)(found)

    def _example(self, name: str) -> str:
        return f"Example: {self.name} {name} {self.examples[name]}"


def _not_asked() -> None:
    """Stands for a command in the help of its program, and is never run."""


@runtime_checkable
class _Misunderstood(Protocol):
    """An exception of Typer about words that it cannot understand."""

    ctx: Any

    def format_message(self) -> str: ...


def run_program(program: CommandLine, arguments: Sequence[str] | None = None) -> int:
    """Run one command of a program.

    arguments: the words behind the program's name, by default the process's own.
    Returns the exit code: 0, 1 after an error, 2 after words that cannot be understood.
    """
    name, words = program.name, list(sys.argv[1:] if arguments is None else arguments)
    if words == ["--version"]:
        from changeling_protocol import __version__

        print(f"{name} {__version__}")
        return 0
    asked = next((word for word in words if word in program.commands), None)
    try:
        app = program.typer(() if asked is None else (asked,))
        code = app(args=words, prog_name=name, standalone_mode=False)
    except SystemExit as end:  # Typer's own where whoever reads the output has gone
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("changeling"):
            raise
        if not words or words == ["--help"]:
            print(_bare_help(program))
            return 0 if words else 2
        code = _failed(name, _missing(program, asked))
    except Exception as error:
        if isinstance(error, _Misunderstood):
            return _misunderstood(name, error)
        sentence = _sentence(error)
        if sentence is None:
            raise
        code = _failed(name, sentence)
    return code if isinstance(code, int) else 0


def _missing(program: CommandLine, asked: str | None) -> str:
    extra = program.commands[next(iter(program.commands)) if asked is None else asked].extra
    return f'this needs more than is installed: pip install "changeling[{extra}]", or ".[{extra}]" in a clone'


def _bare_help(program: CommandLine) -> str:
    """The help where no extra is installed: the commands of each."""
    lines = [f"{program.name} COMMAND ...", "", "The SDK of apps is installed. Its commands come with an extra:"]
    extras = [listed.extra for listed in program.commands.values()]
    for extra in dict.fromkeys(extras):
        commands = ", ".join(command for command, listed in program.commands.items() if listed.extra == extra)
        lines.append(f'  pip install "changeling[{extra}]", or ".[{extra}]" in a clone: {commands}')
    return "\n".join([*lines, "", VERSION_HINT])


def _sentence(error: Exception) -> str | None:
    """The sentence that tells a user of an error of ours, of the system, or of a store or server that fails.

    None for a defect, which keeps its traceback.
    """
    from changeling_protocol import ChangelingError

    if isinstance(error, OSError) and error.filename is not None and error.strerror is not None:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, ChangelingError | ValueError | OSError):
        return str(error)
    sqlalchemy, httpx = (sys.modules.get(module) for module in ("sqlalchemy.exc", "httpx"))
    if sqlalchemy is not None and isinstance(error, sqlalchemy.DBAPIError):
        return f"the store cannot be used: {error.orig}"
    if httpx is not None and isinstance(error, httpx.HTTPError | httpx.InvalidURL):
        return f"the server could not be reached: {error}"
    return None


def _misunderstood(name: str, error: _Misunderstood) -> int:
    message = error.format_message()
    if not message.strip():  # a program without a word has printed its help
        return 2
    words = name if error.ctx is None else error.ctx.command_path
    print(f"{name}: {message.strip().rstrip('.')}; see {words} --help", file=sys.stderr)
    return 2


def _failed(name: str, sentence: str) -> int:
    print(f"{name}: {sentence}", file=sys.stderr)
    return 1


_SURVEY = "48f7e5af2dd8ff764869b955e9d67f62"
_SERVER = "--server https://surveys.example.org"

EXAMPLES = {
    "serve": "--store server.db --authority authority.pub",
    "fold": "--store server.db",
    "relay": "--upstream https://surveys.example.org --authority authority.pub --spool spool",
    "histogram": f"{_SURVEY} {_SERVER}",
    "series": f"survey.signed {_SERVER} --stratum platform:linux",
    "change": f"{_SURVEY} {_SERVER} --after 4",
    "status": f"{_SURVEY} {_SERVER}",
    "verify": f"{_SURVEY} {_SERVER} --authority authority.pub",
    "backup": "--store server.db -o monday.backup",
    "restore": "monday.backup --store server.db",
    "doctor": "--store server.db",
    "dev": "--answers tea,coffee,neither --fleet 200",
    "authority new": "-o authority",
    "survey new": "--question 'Tea?' --answers yes,no --period 1w --horizon 52w --at-most 3 --epsilon 4 --devices 2e4 "
    "-o tea.json",
    "survey sign": "tea.json --key authority.key -o tea.signed",
    "survey publish": f"tea.signed {_SERVER} --public",
    "survey close": f"tea.signed --after 12 --key authority.key {_SERVER}",
    "survey show": "tea.signed",
    "survey code": "tea.signed --authority authority.pub -o tea_survey.py",
    "survey extend": "tea.signed -o more_tea.json",
    "survey notice": "tea.signed",
    "keys new": "--store server.db -o key.request",
    "keys list": "--store server.db",
    "keys reencrypt": "--store server.db --new-store-key-file store.key",
    "keys sign": "key.request --key authority.key --begins 2027-01-01 --expires 2028-01-01 -o key.signed",
    "keys publish": f"key.signed {_SERVER}",
    "token new": "--store server.db --name laptop --scope read -o operator.token",
    "token list": "--store server.db",
    "token revoke": "3f1c9a2b --store server.db",
    "clock confirm": _SERVER,
    "store version": "--store server.db",
    "store upgrade": "--store server.db",
    "segments list": "--store server.db",
    "segments compact": "--store server.db",
    "release": "people.csv --query 'any answer' --every 1mo --start 2026-01-01 --epsilon 1 --at-most 4 -o counts.csv",
    "smooth": "counts.csv -o smooth.csv",
    "count": "--periods 365 --at-most 7 --epsilon 1 --memory counter",
    "ask": "members.csv --column member=yes/no --query member --epsilon 1 -o answers.csv",
}
"""What comes after the name of each command in its example."""


def _of_server(at: str, line: str, made_by: str | None = None) -> ListedCommand:
    return ListedCommand(f"changeling_aggregator.cli.{at}", line, "server", "A server and its surveys", made_by=made_by)


def _of_curator(at: str, line: str, extra: str = "central", epilog: str | None = None) -> ListedCommand:
    return ListedCommand(at, line, extra, "A database of your own", epilog=epilog)


_SETTINGS = "changeling_aggregator.cli.access:SettingsCommand"
COMMANDS = {
    "serve": _of_server(
        "serve:serve",
        "Run the aggregation server: surveys and sealing keys out, sealed uploads in, histograms out.",
        _SETTINGS,
    ),
    "fold": _of_server("serve:fold", "Count what is uploaded and not counted yet, beside a server or without one."),
    "relay": _of_server(
        "serve:relay",
        "Run a relay: sealed uploads are kept, shuffled and forwarded in batches, without the addresses they came "
        "from.",
        _SETTINGS,
    ),
    "histogram": _of_server(
        "results:histogram", "Print how many entries hold each answer, with their shares and intervals."
    ),
    "series": _of_server(
        "results:series",
        "Print how many entries hold each answer at the end of every period, or how the shares of two arms differ.",
    ),
    "change": _of_server(
        "results:change",
        "Print by how many entries each answer changed: over one window (--after), or over all of a width (--width).",
    ),
    "status": _of_server(
        "results:status",
        "Print how far a survey is, and who answers; with an operator's token also what was refused.",
    ),
    "verify": _of_server(
        "verify:verify",
        "Work out every published figure of an open survey again, from its signed tallies, and say which differ.",
    ),
    "backup": _of_server(
        "store:backup", "Write all that a store has counted and published into one file, as it is at one moment."
    ),
    "restore": _of_server("store:restore", "Put a backup into a new store, and say what is lost."),
    "doctor": _of_server(
        "store:doctor",
        "Look whether a server can go on: store, versions, keys, clock, disk, permissions, surveys that end soon.",
        "changeling_aggregator.cli.store:DoctorCommand",
    ),
    "dev": ListedCommand(
        "changeling_commands.dev:dev",
        "Run a server on loopback with a survey of ten-second periods, and print its estimates.",
        "server",
        "A server and its surveys",
    ),
    "authority": _of_server("keys:authority", "Make the key pair that signs surveys and sealing keys."),
    "survey": ListedCommand(
        "changeling_commands.surveys:app",
        "Write, sign, publish and show surveys.",
        "server",
        "A server and its surveys",
    ),
    "keys": _of_server(
        "keys:app", "Make, sign and publish the keys that uploads are sealed to, and results signed with."
    ),
    "token": _of_server("keys:tokens", "Make, list and revoke the tokens of a server."),
    "clock": _of_server("access:clock", "Tell a server what time it is."),
    "store": _of_server("store:app", "Show and change the schema version of a store."),
    "segments": _of_server("store:segments", "Look at segments of the log, and put them in order."),
    "release": _of_curator(
        "changeling_central.command:release",
        "Publish a count of a changelog continually, with standard errors; run again, it goes on where it stopped.",
        epilog="changeling_central.command:MECHANISMS",
    ),
    "smooth": _of_curator(
        "changeling_central.command:smooth",
        "Estimate levels better from what is published alone, under drift and seasons; it costs nothing.",
    ),
    "count": _of_curator(
        "changeling_papers.commands:count",
        "Count a stream with a memory that may be seized: a number a line comes in, period,estimate,standard_error go "
        "out.",
        "papers",
    ),
    "ask": _of_curator(
        "changeling_papers.commands:ask",
        "Answer counting queries of one table by sigma-counting: nested queries are never out of order.",
        "papers",
    ),
}
CHANGELING = CommandLine(
    "changeling", "Publish how people's answers change, without learning who answers what.", COMMANDS, EXAMPLES
)
