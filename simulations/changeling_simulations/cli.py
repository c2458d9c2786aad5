"""The commands of `changeling-sim`."""

import typer
from changeling_commands.examples import OF_SIMULATIONS, show_examples
from changeling_commands.running import VERSION_HINT

from .capacity import capacity
from .compare_command import compare
from .fleet_command import fleet, fleet_check
from .plan_command import plan
from .run_command import run
from .sweep_command import sweep_command

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.callback(epilog=VERSION_HINT)
def changeling_sim() -> None:
    """What will a survey of changing answers cost in privacy, and how accurate will it be?"""


app.command()(plan)
app.command()(run)
app.command()(compare)
app.command("sweep")(sweep_command)
app.command()(fleet)
app.command()(fleet_check)
app.command()(capacity)
show_examples("changeling-sim", app, OF_SIMULATIONS)
