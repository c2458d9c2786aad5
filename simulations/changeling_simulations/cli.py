"""The commands of `changeling-sim`, each with its line of help and its example; imported when they are asked for."""

from functools import partial

from changeling_commands import CommandLine, ListedCommand, run_program

_WISH = "--answers 2 --period 4w --horizon 48w --at-most 3 --epsilon 4 --devices 20000"
EXAMPLES = {
    "plan": f"{_WISH} -o survey.json",
    "run": "school-to-work --entries 1e6 --epsilon 8 --plot run.png",
    "compare": _WISH,
    "sweep": "experiment.toml -o sweep.csv",
    "fleet": "survey.signed --server http://127.0.0.1:8080 --devices 1e5",
    "fleet-check": "fleet.json --server http://127.0.0.1:8080",
    "capacity": "survey.signed --devices 1e7",
}
"""What comes after the name of each command in its example."""


_listed = partial(ListedCommand, extra="simulate")
COMMANDS = {
    "plan": _listed(
        "changeling_simulations.commands:plan_command",
        "Find the best release plan for a budget, and show it beside the plans that others would make.",
    ),
    "run": _listed(
        "changeling_simulations.run_command:run_command",
        "Simulate one survey of a population under the best plan, and show its estimates beside the truth.",
    ),
    "compare": _listed(
        "changeling_simulations.commands:compare_command",
        "Set the best plan beside the methods of others, at one epsilon: how wrong, what is promised, what is exposed.",
    ),
    "sweep": _listed(
        "changeling_simulations.commands:sweep_command",
        "Simulate surveys over a grid of settings; killed and started again, it goes on, to the same bytes.",
    ),
    "fleet": _listed(
        "changeling_simulations.fleet_command:fleet",
        "Load a server of your own with the sealed envelopes of made-up devices, of which everything is known.",
    ),
    "fleet-check": _listed(
        "changeling_simulations.fleet_command:fleet_check",
        "Compare what a fleet's envelopes must come to with what a server shows; the exit code is 1 where they differ.",
    ),
    "capacity": _listed(
        "changeling_simulations.capacity:capacity",
        "How many machines a survey takes, and how much of one server's limits.",
    ),
}
CHANGELING_SIM = CommandLine(
    "changeling-sim",
    "Plan and simulate surveys of changing answers: their cost in privacy, and their accuracy.",
    COMMANDS,
    EXAMPLES,
)

main = partial(run_program, CHANGELING_SIM)
"""Run a command, by default the process's own words; returns the exit code."""
