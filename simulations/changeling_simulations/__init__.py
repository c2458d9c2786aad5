"""What a survey will cost in privacy, and how accurate it will be: populations, experiments and their pictures.

    run = design("Do you use feature X?", ["yes", "no"], devices=20_000).simulate()

    changelog = read_csv(changelog_path("school-to-work"))      of changeling_statistics
    calendar, constraint = calendar_for(changelog), AtMost(4)
    population = Population.from_changelog(changelog, calendar, constraint).resampled(1_000_000, generator)
    survey = paper_survey(changelog.answers, calendar, constraint, epsilon=Decimal(8))
    experiment = simulate(population, survey, generator)
    save_plot(experiment, Path("run.png"))

Raises ValueError for a bad argument, and the errors of `changeling_statistics`. Each name is imported when it is first
used, so that in a bare install the console script can say what is missing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .comparison import Method, SideBySide, compare_methods
    from .designing import Design, Run, design
    from .experiment import Experiment, epsilon_text, exact_error, in_the_field, simulate
    from .field import Field, FieldTallies, sample_field
    from .plots import save_plot
    from .population import (
        Population,
        World,
        aligned,
        bundled_names,
        calendar_for,
        changelog_path,
        check_dates,
        closed_cohort,
        paper_survey,
        synthetic_calendar,
        synthetic_changelog,
    )
    from .sampler import sample_tallies

_NAMES = {
    "comparison": "Method SideBySide compare_methods",
    "designing": "Design Run design",
    "experiment": "Experiment epsilon_text exact_error in_the_field simulate",
    "field": "Field FieldTallies sample_field",
    "plots": "save_plot",
    "population": "Population World aligned bundled_names calendar_for changelog_path check_dates closed_cohort "
    "paper_survey synthetic_calendar synthetic_changelog",
    "sampler": "sample_tallies",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "Design",
    "Experiment",
    "Field",
    "FieldTallies",
    "Method",
    "Population",
    "Run",
    "SideBySide",
    "World",
    "aligned",
    "bundled_names",
    "calendar_for",
    "changelog_path",
    "check_dates",
    "closed_cohort",
    "compare_methods",
    "design",
    "epsilon_text",
    "exact_error",
    "in_the_field",
    "paper_survey",
    "sample_field",
    "sample_tallies",
    "save_plot",
    "simulate",
    "synthetic_calendar",
    "synthetic_changelog",
]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULES[name]}", __name__), name)


def __dir__() -> list[str]:
    return __all__
