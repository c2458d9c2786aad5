"""Strata cost no epsilon: what a device sends tells no more of its answers with them than without."""

import pytest

from .attack import Device
from .strata_attack import loss_with_strata
from .test_joint_attacked import BEGIN, SURVEYS, heard, honest, offline, set_back


@pytest.mark.parametrize("schedule", [honest, set_back, heard, offline])
@pytest.mark.parametrize("name", SURVEYS)
def test_strata_change_nothing_of_the_loss(name, schedule):
    """Enumerated over all coins and all that an app may record: the same fraction, strata and standings seen too."""
    asked = SURVEYS[name]
    moments = schedule(asked.calendar.periods)
    assert loss_with_strata(asked, moments, BEGIN - 5) == Device(asked, moments, BEGIN - 5).worst_ratio()
