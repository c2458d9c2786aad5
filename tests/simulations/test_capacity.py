"""The capacity model: what it multiplies, fits and predicts, and a day in which a region is lost."""

import json
import re

import numpy as np
import pytest
from changeling_protocol import Calendar
from changeling_simulations.__main__ import main
from changeling_simulations.capacity.costs import MEASURED, Cost, fitted
from changeling_simulations.capacity.day import MINUTES, Region, simulated_day
from changeling_simulations.capacity.demand import demand_of
from changeling_simulations.capacity.sizing import Machine, sized
from changeling_simulations.fleet.rhythm import Rhythm
from changeling_statistics.survey_files import write_survey

from tests.command_line import invoked
from tests.protocol.examples import survey

DAY = 86_400
DAILY = survey(calendar=Calendar(0, DAY, 16), grace=2 * DAY)
HOURLY = survey(calendar=Calendar(0, 3600, 48), grace=6 * 3600)


@pytest.mark.parametrize("growth", [0.0, 0.3])
def test_a_cost_that_is_of_the_models_form_is_found_again(growth):
    """And is right at ten times the size; start and unit costs below zero are noise."""
    true = Cost(2.0, 1e-4 * (1 - growth), 1e-4 * growth / np.log2(20_000))
    sizes = [5_000.0, 10_000.0, 20_000.0]
    found = fitted(sizes, [true.of(n) for n in sizes], growth)
    assert found.of(200_000) == pytest.approx(true.of(200_000))
    assert fitted([10, 20], [1.0, 3.0]).start == 0.0
    assert fitted([10, 20], [3.0, 1.0]).each == 0.0
    with pytest.raises(ValueError, match="two sizes"):
        fitted([10, 10], [1, 2])


def test_a_demand_follows_from_the_survey_and_how_often_apps_run():
    """A daily survey: an envelope a day, ids of three closings; an hourly one has 24 closings in it."""
    daily = demand_of(DAILY, 1000)
    assert (daily.envelopes, daily.closings, daily.open_closings, daily.kept_days) == (1000, 1, 3, 2)
    assert daily.kept_ids == 3000
    assert daily.log_bytes == 2000 * daily.envelope_bytes
    hourly = demand_of(HOURLY, 1000)
    assert (hourly.envelopes, hourly.closings, hourly.open_closings) == (1000, 24, 7)
    assert hourly.envelope_bytes > daily.envelope_bytes + 23 * 19
    often = demand_of(HOURLY, 1000, uploads_a_day=100, retention=DAY)
    assert (often.envelopes, often.closings, often.kept_days) == (24_000, 1, 1)
    with pytest.raises(ValueError, match="devices whose apps run"):
        demand_of(DAILY, 0)


def test_a_size_grows_with_devices_and_names_what_breaks_first():
    """Ten times the devices, ten times the cores of each stage, or a little more where ids are merged; tallies stay."""
    small, large = (sized(demand_of(DAILY, devices), MEASURED) for devices in (10**7, 10**8))
    for here, there in zip(small.stages, large.stages, strict=True):
        assert 9.99 < there.cores / here.cores < 12
    assert large.peak == pytest.approx(1.6 * large.mean)
    assert large.limits[0][1] > 1 > small.limits[-1][1]
    assert dict(large.limits)["one disk"] == pytest.approx(10 * dict(small.limits)["one disk"], rel=1e-3)
    assert sized(demand_of(DAILY, 10**9), MEASURED, machine=Machine(cores=1)).machines > large.machines
    assert sized(demand_of(DAILY, 10**8), MEASURED, shards=4).stages[2].cores < large.stages[2].cores
    assert demand_of(DAILY, 10**8).tally_bytes == demand_of(DAILY, 10**7).tally_bytes


def test_a_day_loses_nothing_and_catches_up():
    """Whatever is made is taken, folded, or waits; with a region lost at its busiest hours as well."""
    regions = (Region(0.5, 18, lost=(17, 20)), Region(0.5, 6))
    calm = simulated_day(1e9, (Region(0.5, 18), Region(0.5, 6)), 30_000, 20_000)
    assert calm.on_devices.max() == 0
    day = simulated_day(1e9, regions, 20_000, 15_000)
    assert len(day.made) == 2 * MINUTES
    assert day.made.sum() == pytest.approx(2e9)
    assert day.made.sum() == pytest.approx(day.folded.sum() + day.on_devices[-1] + day.in_log[-1])
    assert day.on_devices[: 17 * 60].max() == 0 < day.on_devices[20 * 60 - 1]
    hours = day.caught_up(20.0)
    assert hours is not None
    assert 0 < hours < 12
    assert simulated_day(1e9, regions, 5_000, 15_000).caught_up(20.0) is None
    assert 0 < day.lag < 24 * 60


def test_the_command_prints_sizes_and_a_day(tmp_path):
    """As tables, and as JSON with the same figures."""
    write_survey(tmp_path / "survey.json", DAILY)
    arguments = ("capacity", str(tmp_path / "survey.json"), "--devices", "1e6", "--devices", "1e9")
    shown = invoked(main, *arguments, "--lost-region", "17-20")
    assert shown.exit_code == 0, shown.output
    for part in ("1,000,000,000", "cores to open", "machines", "A day with a lost region"):
        assert part in shown.output
    told = json.loads(invoked(main, *arguments, "--lost-region", "17-20", "--json").output)
    assert [each["demand"]["devices"] for each in told["sizes"]] == [10**6, 10**9]
    assert f"{told['sizes'][1]['sizing']['machines']:,}" in shown.output
    assert len(told["day"]["waiting_in_log"]) == 2 * MINUTES
    refused = invoked(main, *arguments, "--lost-region", "20-17")
    assert "hours of a day are like 17-20" in re.sub(r"\s+", " ", refused.stderr)


def test_a_rhythm_swings_no_further_than_to_nobody():
    """In words."""
    with pytest.raises(ValueError, match="swings by 0 to 1"):
        Rhythm(swing=1.1)
