"""The commands of `changeling`: the server's and the curator's. Each imports what is heavy only when it runs.

So the help of all commands is there whichever extra is installed, and says which extra a command needs.
"""

import typer
from changeling_aggregator.cli import access, doctor, keys, results, serve, store, survey, verify
from changeling_aggregator.cli.settings import SettingsCommand
from changeling_central import command as release
from changeling_papers import commands as papers

from .dev import dev
from .examples import OF_CHANGELING, show_examples
from .notice import notice
from .running import VERSION_HINT
from .survey_new import new

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

survey.app.command()(new)
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
show_examples("changeling", app, OF_CHANGELING)
