"""An example for each command, which its help shows last."""

from collections.abc import Iterable, Iterator, Mapping

from typer import Typer
from typer.models import CommandInfo

_SURVEY = "48f7e5af2dd8ff764869b955e9d67f62"
_SERVER = "--server https://surveys.example.org"
_WISH = "--answers 2 --period 4w --horizon 48w --at-most 3 --epsilon 4 --devices 20000"

OF_CHANGELING = {
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
"""By the command, what comes after its name."""

OF_SIMULATIONS = {
    "plan": f"{_WISH} -o survey.json",
    "run": "school-to-work --entries 1e6 --epsilon 8 --plot run.png",
    "compare": _WISH,
    "sweep": "experiment.toml -o sweep.csv",
    "fleet": "survey.signed --server http://127.0.0.1:8080 --devices 1e5",
    "fleet-check": "fleet.json --server http://127.0.0.1:8080",
    "capacity": "survey.signed --devices 1e7",
}
"""Those of `changeling-sim`."""


def show_examples(program: str, app: Typer, examples: Mapping[str, str]) -> None:
    """Lets the help of each command end with its example. Raises KeyError for a command that has none."""
    for name, command in _commands(app):
        command.epilog = "\n\n".join(filter(None, (f"Such as: {program} {name} {examples[name]}", command.epilog)))


def _commands(app: Typer, before: Iterable[str] = ()) -> Iterator[tuple[str, CommandInfo]]:
    for command in app.registered_commands:
        own = command.name or (command.callback.__name__.replace("_", "-") if command.callback else "")
        yield " ".join((*before, own)), command
    for group in app.registered_groups:
        if group.typer_instance is not None:
            yield from _commands(group.typer_instance, (*before, str(group.name or group.typer_instance.info.name)))
