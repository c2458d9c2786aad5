"""Wishes that the tests of planning share."""

from decimal import Decimal
from unittest.mock import patch

from changeling_protocol import AtMost, Calendar, ExpectedChanges
from changeling_statistics import Wish


def without_histories():
    """For plans that need a floor: histories tell states at all times, and no plan with them was found to need one."""
    return patch("changeling_statistics.planning.candidates.history_groups", return_value=())


def wish(periods=16, answers=3, k=3, epsilon="6", devices=1000, later=50_000, **rest):
    return Wish(
        answers=answers,
        calendar=Calendar(1_800_000_000, 60, periods),
        constraint=rest.pop("constraint", AtMost(k)),
        epsilon=Decimal(epsilon),
        devices=devices,
        expected=ExpectedChanges(rest.pop("first", 10**6), later),
        **rest,
    )
