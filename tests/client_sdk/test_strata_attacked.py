"""Strata cost no epsilon: what a device sends tells no more of its answers with them than without."""

from dataclasses import replace

import pytest
from changeling_protocol import Breakdown, StratumNumber

from .attack import Device
from .test_joint_attacked import BEGIN, SURVEYS, heard, honest, offline, set_back, worst

SOONEST = ("layers", "sets of two states")
"""Those that are enumerated soonest; the others are heavy."""
BREAKDOWNS = (Breakdown("system", ("linux", "mac", "windows")), Breakdown("channel", ("release", "beta")))


@pytest.mark.parametrize("schedule", [honest, set_back, heard, offline])
@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=[pytest.mark.heavy] * (each not in SOONEST)) for each in SURVEYS]
)
def test_strata_change_nothing_of_the_loss(name, schedule):
    """Enumerated over all coins and all that an app may record: the same fraction, strata and standings seen too.

    The app tells the first of six strata as the entry enrols, and another before the last flush.
    """
    asked = SURVEYS[name]
    moments = schedule(asked.calendar.periods)
    told = replace(asked, breakdowns=BREAKDOWNS, stratum_changes=1)
    changed = [*moments[:-1], replace(moments[-1], tells=StratumNumber(5))]
    assert Device(told, changed, BEGIN - 5).worst_ratio() == worst(name, schedule)
