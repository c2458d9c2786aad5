"""The commands of `changeling-sim`."""

import typer
from changeling_commands.running import VERSION_HINT, show_examples
from changeling_commands.wishes import WishOptions, taking

from .capacity import capacity
from .commands import compare, plan, sweep_command
from .fleet_command import fleet, fleet_check
from .run_command import run

WISH = "--answers 2 --period 4w --horizon 48w --at-most 3 --epsilon 4 --devices 20000"
EXAMPLES = {
    "plan": f"{WISH} -o survey.json",
    "run": "school-to-work --entries 1e6 --epsilon 8 --plot run.png",
    "compare": WISH,
    "sweep": "experiment.toml -o sweep.csv",
    "fleet": "survey.signed --server http://127.0.0.1:8080 --devices 1e5",
    "fleet-check": "fleet.json --server http://127.0.0.1:8080",
    "capacity": "survey.signed --devices 1e7",
}
"""What comes after the name of each command in its example."""

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.callback(epilog=VERSION_HINT)
def changeling_sim() -> None:
    """Plan and simulate surveys of changing answers: their cost in privacy, and their accuracy."""


app.command()(taking(WishOptions, plan))
app.command()(run)
app.command()(compare)
app.command("sweep")(sweep_command)
app.command()(fleet)
app.command()(fleet_check)
app.command()(capacity)
show_examples("changeling-sim", app, EXAMPLES)
