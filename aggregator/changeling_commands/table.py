"""The commands of `changeling`: the server's and the curator's, each with its line of help and its example.

Nothing of a command is imported before it is asked for, so the help of the program is there whichever extra is
installed.
"""

from .running import CommandLine, ListedCommand

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
    "survey new": "--question 'Tea?' --answers yes,no --period 1w --horizon 52w --epsilon 4 --devices 2e4 -o tea.json",
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
    "ask": "people.csv --column member=yes/no --query \"member == 'yes'\" --epsilon 1 -o answers.csv",
}
"""What comes after the name of each command in its example."""


def _of_server(at: str, line: str, made_by: str | None = None) -> ListedCommand:
    return ListedCommand(f"changeling_aggregator.cli.{at}", line, "server", "A server and its surveys", made_by=made_by)


def _of_curator(at: str, line: str, extra: str = "central", epilog: str | None = None) -> ListedCommand:
    return ListedCommand(at, line, extra, "A database of your own", epilog=epilog)


_SETTINGS = "changeling_aggregator.cli.settings:SettingsCommand"
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
        "doctor:doctor",
        "Look whether a server can go on: store, versions, keys, clock, disk, permissions, surveys that end soon.",
        "changeling_aggregator.cli.doctor:DoctorCommand",
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
    "clock": _of_server("access:app", "Tell a server what time it is."),
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
