"""A device under attack whose app tells strata: the first as the entry enrols, and another before the last flush."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from changeling_protocol import Breakdown, StratumNumber, Survey

from .attack import Device, Moment

BREAKDOWNS = (Breakdown("system", ("linux", "mac", "windows")), Breakdown("channel", ("release", "beta")))


def loss_with_strata(survey: Survey, schedule: Sequence[Moment], enrols: float) -> Fraction:
    """The largest ratio of what is sent, closings' strata and standings included, with six strata declared.

    schedule: ends with a flush. Everything else is as `Device` takes it.
    """
    told = replace(survey, breakdowns=BREAKDOWNS, stratum_changes=1)
    moments = [*schedule[:-1], replace(schedule[-1], tells=StratumNumber(5))]
    return Device(told, moments, enrols).worst_ratio()
