"""A survey designer asks, before anybody is asked: what will it cost, and how accurate will it be?

    $ python examples/design_a_survey.py

Finds the release plan with the least error for a budget, beside the plans that others would make; then tries it on a
million made-up entries.
"""

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
from changeling_protocol import AtMost, Calendar, ExpectedChanges
from changeling_simulations import Population, simulate, synthetic_changelog
from changeling_statistics import Wish, compare_plans, write_survey

QUESTION, ANSWERS = "What do you do?", ("school", "training", "employment")
CALENDAR = Calendar("2027-01-01", "4w", 13)
CONSTRAINT = AtMost(4)  # an entry's answer appears, and changes three times at most
ENTRIES = 1_000_000


def main() -> None:
    """Compares plans, then simulates the best."""
    wish = Wish(
        answers=len(ANSWERS),
        calendar=CALENDAR,
        constraint=CONSTRAINT,
        epsilon=Decimal(4),  # the most that an entry may lose in all
        devices=ENTRIES,
        expected=ExpectedChanges(first=1_000_000, later=40_000),  # millionths: all answer, 4% change in a period
    )
    comparison = compare_plans(wish)
    for option in comparison.options.values():
        error, devices = option.prediction.mean, option.prediction.devices_for(0.01)
        print(f"{option.title:32} ± {100 * error:6.2f} points; {devices:15,.0f} devices for ± 1 point")
    print(comparison.verdict)

    generator = np.random.default_rng(13)
    changelog = synthetic_changelog(len(ANSWERS), entries=10_000, changes=0.5, calendar=CALENDAR, generator=generator)
    changelog = replace(changelog, answers=ANSWERS)
    people = Population.from_changelog(changelog, CALENDAR, CONSTRAINT).resampled(ENTRIES, generator)
    survey = wish.survey(comparison.planned.plan, ANSWERS, QUESTION)
    experiment = simulate(people, survey, generator)
    print(f"\nThe optimal plan, tried on {experiment.entries:,} made-up entries, at the end of the year:")
    percent = 100 / ENTRIES
    last = (experiment.truth[-1], experiment.estimates[-1], experiment.intervals[-1])
    for answer, truth, estimate, (low, high) in zip(ANSWERS, *(figures * percent for figures in last), strict=True):
        print(f"{answer:10} {truth:5.1f}% in truth, {estimate:5.1f}% published ({low:.1f} to {high:.1f})")

    # What only devices and a server need: how far clocks may be off, when answers come, how few are not shown.
    survey = replace(survey, skew=300, spread=3600, grace=7 * 86_400, minimum=100)
    write_survey(Path("survey.json"), survey)
    print("wrote survey.json, which `changeling survey sign` signs")


if __name__ == "__main__":
    main()
