"""The commands of `changeling`: the server's and the curator's. Each imports what is heavy where it runs."""

import typer
from changeling_aggregator.cli import authority, dev, histogram, keys, serve, survey
from changeling_central.release import command as release

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
