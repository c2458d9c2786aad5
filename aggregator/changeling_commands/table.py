"""The commands of `changeling`: the server's and the curator's. Each imports what is heavy only when it runs.

So the help of all commands is there whichever extra is installed, and says which extra a command needs.
"""

import typer
from changeling_aggregator.cli import access, doctor, keys, results, serve, store, survey, verify
from changeling_aggregator.cli.settings import SettingsCommand
from changeling_central import command as release
from changeling_papers import commands as papers

from .dev import dev
from .running import VERSION_HINT, show_examples
from .surveys import new, notice
from .wishes import WishOptions, taking

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

SERVER, CURATOR = "A server and its surveys", "A database of your own"
OF_SERVER, OF_CENTRAL, OF_PAPERS = (rf'Part of "changeling\[{extra}]".' for extra in ("server", "central", "papers"))

app = typer.Typer(
    name="changeling",
    help="Publish how people's answers change, without learning who answers what.",
    epilog=VERSION_HINT,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

survey.app.command()(taking(WishOptions, new))
survey.app.command()(notice)
groups = {
    "authority": keys.authority,
    "survey": survey.app,
    "keys": keys.app,
    "token": keys.tokens,
    "clock": access.app,
    "store": store.app,
    "segments": store.segments,
}
for name, group in groups.items():
    app.add_typer(group, name=name, rich_help_panel=SERVER, epilog=OF_SERVER)
shown = (results.histogram, results.series, results.change, results.status, verify.verify)
kept = (store.backup, store.restore, doctor.doctor)
configured = {serve.serve: SettingsCommand, serve.relay: SettingsCommand, doctor.doctor: doctor.DoctorCommand}
for command in (serve.serve, serve.fold, serve.relay, *shown, *kept, dev):
    app.command(cls=configured.get(command), rich_help_panel=SERVER, epilog=OF_SERVER)(command)
app.command(rich_help_panel=CURATOR, epilog=f"{release.MECHANISMS}\n\n{OF_CENTRAL}")(release.release)
app.command(rich_help_panel=CURATOR, epilog=OF_CENTRAL)(release.smooth)
app.command(rich_help_panel=CURATOR, epilog=OF_PAPERS)(papers.count)
app.command(rich_help_panel=CURATOR, epilog=OF_PAPERS)(papers.ask)
show_examples("changeling", app, EXAMPLES)
