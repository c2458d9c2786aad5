"""Measure 1 of the field: sixty real clients stop for a while, and a real server's series goes on after it.

For PAUSED periods nobody flushes, until the grace of what they should have reported is over. From then on everybody
reports again. What is counted is how many periods have no figure besides those that are lost.
"""

from contextlib import ExitStack
from dataclasses import dataclass, replace
from decimal import Decimal
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import numpy as np
from changeling_protocol import AtMost, Calendar, ExpectedChanges, Survey
from changeling_statistics import Wish, hierarchical_plan, optimal_plan, write_survey

from demo.deployment import Deployment, deployed
from demo.replay import Clock, device, flush

DEVICES, PERIODS, PERIOD, SEED = 60, 40, 3600, 11
PAUSED = (14, 15)
ANSWERS = ("works", "learns", "neither")
CALENDAR, CONSTRAINT = Calendar(1_800_000_000, PERIOD, PERIODS), AtMost(4)
SKEW, SPREAD, GRACE = 5, 10, 600
"""The grace is shorter than a period: what is not sent by then is lost."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """Which periods of a series have no figure.

    null: their numbers. named: how many of them name the node that is missing.
    """

    null: tuple[int, ...]
    named: int

    @property
    def after(self) -> int:
        """How many periods it takes after the last lost one until there are figures again, for good."""
        return max((period - PAUSED[-1] for period in self.null), default=0)


def measure() -> dict[str, float]:
    """For a planned survey with its bridge, one without, and a hierarchy of changes."""
    figures: dict[str, float] = {"1_tenth_of_horizon": ceil(PERIODS / 10), "1_lost_periods": len(PAUSED)}
    for name, survey in surveys().items():
        stopped = lived(survey)
        figures[f"1_null_{name}"] = len(stopped.null)
        figures[f"1_null_that_name_a_node_{name}"] = stopped.named
        figures[f"1_periods_until_back_{name}"] = stopped.after
    return figures


def surveys() -> dict[str, Survey]:
    """Plans at ε = 8 for as many devices, and at a larger one the paper's."""
    wish = Wish(
        len(ANSWERS), CALENDAR, CONSTRAINT, Decimal(8), DEVICES, expected=ExpectedChanges(first=10**6, later=30_000)
    )
    plans = {
        "bridged": optimal_plan(wish).plan,
        "unbridged": optimal_plan(replace(wish, bridge=False)).plan,
        "hierarchy": hierarchical_plan(len(ANSWERS), CALENDAR, CONSTRAINT, epsilon=Decimal(40), branching=2, layers=4),
    }
    return {
        name: replace(wish.survey(plan, ANSWERS), skew=SKEW, spread=SPREAD, grace=GRACE) for name, plan in plans.items()
    }


def lived(survey: Survey) -> Stopped:
    """Real clients and a real server through the whole calendar."""
    with TemporaryDirectory(prefix="changeling-stopped-") as made:
        folder = Path(made)
        write_survey(folder / "survey.json", survey)
        with deployed(folder, folder / "survey.json") as deployment:
            _live(deployment, folder)
            deployment.fold()
            return _stopped(deployment)


def _live(deployment: Deployment, folder: Path) -> None:
    survey, generator = deployment.survey, np.random.default_rng(SEED)
    calendar, clock = survey.calendar, Clock(survey.calendar.start + 1)
    deployment.move_clock(clock())
    with ExitStack() as stack:
        transport = stack.enter_context(httpx.HTTPTransport())
        clients = [
            stack.enter_context(device(folder / f"device-{i}.db", deployment, transport, clock)) for i in range(DEVICES)
        ]
        handles = [client.join(survey.id) for client in clients]
        flush(clients)
        for period in range(1, PERIODS + 1):
            for handle in handles:
                if period == 1 or generator.random() < 0.03:
                    handle.record(ANSWERS[generator.integers(len(ANSWERS))])
            clock.time = calendar.time(period) + SKEW + SPREAD + 1
            deployment.move_clock(clock())
            if period not in PAUSED:
                flush(clients)


def _stopped(deployment: Deployment) -> Stopped:
    series = deployment.series()
    null = [each for each in series if each["values"] is None]
    named = sum(each["missing"] is not None for each in null)
    return Stopped(tuple(each["period"] for each in null), named)
