"""The capacity model: what it multiplies, fits and predicts, and a day in which a region is lost."""

import json
import re

import pytest
from changeling_protocol import Calendar
from changeling_simulations.__main__ import main
from changeling_simulations.capacity.costs import Cost, fitted
from changeling_simulations.capacity.day import MINUTES, Region, simulated_day
from changeling_simulations.capacity.demand import demand_of
from changeling_simulations.capacity.design import ACCEPTING, COUNTING, DISK, IDS, OPENING, Design, needed
from changeling_simulations.capacity.sizing import Machine, Prices, sized
from changeling_simulations.fleet.rhythm import Rhythm
from changeling_statistics import write_survey

from tests.command_line import invoked
from tests.protocol.examples import survey

DAY = 86_400
DAILY = survey(calendar=Calendar(0, DAY, 16), grace=2 * DAY)
HOURLY = survey(calendar=Calendar(0, 3600, 48), grace=6 * 3600)


def test_a_cost_that_is_of_the_models_form_is_found_again():
    """And is right at ten times the size, whatever a fold takes by itself; costs below zero are noise."""
    true = Cost(0.027, 4.5e-6)
    uploads, folds = [4_000.0, 8_000.0, 12_000.0], [4.0, 4.0, 3.0]
    found = fitted(uploads, [true.of(*each) for each in zip(uploads, folds, strict=True)], folds)
    assert found.of(120_000, 30) == pytest.approx(true.of(120_000, 30))
    assert fitted([10, 20], [1.0, 3.0]).start == 0.0
    assert fitted([10, 20], [3.0, 1.0]).each == 0.0
    with pytest.raises(ValueError, match="two sizes"):
        fitted([10, 10], [1, 2])
    with pytest.raises(ValueError, match="above zero"):
        fitted([10, 20], [0, 2])


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
    """Ten times the devices, ten times the cores to accept, or less where folds take something anyway; tallies stay."""
    small, large, larger = (sized(demand_of(DAILY, devices), Design.STORE) for devices in (10**6, 10**7, 10**8))
    assert large.stages[0].cores == pytest.approx(10 * small.stages[0].cores)
    for here, there in zip(small.stages, large.stages, strict=True):
        assert 1 < there.cores / here.cores < 10.01
    assert large.peak == pytest.approx(1.6 * large.mean)
    assert larger.stages[2].cores > 10 * large.stages[2].cores  # ids that are not remembered are read again
    assert larger.limits[0][1] > 1 > larger.limits[-1][1]
    assert larger.over[0] == larger.limits[0][0]
    assert large.over == ()
    assert dict(large.limits)[DISK] == pytest.approx(10 * dict(small.limits)[DISK], rel=1e-3)
    huge = demand_of(DAILY, 10**9)
    assert sized(huge, machine=Machine(cores=1)).machines > sized(huge).machines
    assert dict(sized(huge, shards=4).limits)[IDS] == pytest.approx(dict(sized(huge).limits)[IDS] / 4)
    assert demand_of(DAILY, 10**8).tally_bytes == demand_of(DAILY, 10**7).tally_bytes


def test_the_design_is_the_first_that_has_room():
    """One store as long as nothing is over; segments for what more servers or no disk mend; Spark for all else."""
    fits = dict.fromkeys((ACCEPTING, OPENING, COUNTING, IDS, DISK), 1.0)
    assert needed(fits) is Design.STORE
    assert {needed({**fits, name: 1.1}) for name in (ACCEPTING, DISK)} == {Design.SEGMENTS}
    assert {needed({**fits, ACCEPTING: 2.0, name: 1.1}) for name in (OPENING, COUNTING, IDS)} == {Design.SPARK}
    assert [sized(demand_of(DAILY, devices)).design for devices in (10**6, 10**9)] == [Design.STORE, Design.SPARK]


def test_what_is_written_to_an_object_store_is_paid_for():
    """A store of one's own costs no PUTs; before a bucket, no more are made than there are envelopes."""
    dear, free = Prices(request=1.0), Prices(request=0.0)
    for design in Design:
        paid, unpaid = (sized(demand_of(DAILY, 10**6), design, prices=prices) for prices in (dear, free))
        assert paid.month - unpaid.month == pytest.approx(paid.puts * DAY * 30.4)
        assert (paid.puts == 0) == (design is Design.STORE)
    few = sized(demand_of(DAILY, 1000), Design.SEGMENTS)
    assert few.puts == pytest.approx(few.mean * 16 / 15)


def test_a_run_on_spark_reads_all_ids_that_are_kept():
    """So a longer grace costs processors there, and none of them in one store."""
    short, long = (demand_of(survey(calendar=Calendar(0, DAY, 60), grace=days * DAY), 10**8) for days in (2, 14))
    on_spark, in_store = ([sized(each, design) for each in (short, long)] for design in (Design.SPARK, Design.STORE))
    assert on_spark[1].stages[2].cores > 2 * on_spark[0].stages[2].cores
    assert on_spark[1].shuffled > 2 * on_spark[0].shuffled
    assert in_store[1].stages[2].cores == in_store[0].stages[2].cores
    assert in_store[1].stored > in_store[0].stored


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


def test_a_fold_that_runs_each_hour_is_an_hour_behind():
    """And no more, as long as it keeps up; what it counts is the same."""
    hourly, always = (simulated_day(1e8, (Region(1.0, 18),), 5_000, 5_000, every=minutes) for minutes in (60, 1))
    assert always.lag == 0
    assert 58 <= hourly.lag <= 60
    assert hourly.folded.sum() == pytest.approx(always.folded.sum())


def test_the_command_prints_sizes_and_a_day(tmp_path):
    """As tables, and as JSON with the same figures."""
    write_survey(tmp_path / "survey.json", DAILY)
    arguments = ("capacity", str(tmp_path / "survey.json"), "--devices", "1e6", "--devices", "1e9")
    shown = invoked(main, *arguments, "--lost-region", "17-20")
    assert shown.exit_code == 0, shown.output
    for part in ("1,000,000,000", "cores to open", "machines", "lacks room for", "A day with a lost region"):
        assert part in shown.output
    told = json.loads(invoked(main, *arguments, "--lost-region", "17-20", "--json").output)
    assert [each["demand"]["devices"] for each in told["sizes"]] == [10**6, 10**9]
    assert f"{told['sizes'][1]['sizing']['machines']:,}" in shown.output
    assert len(told["day"]["waiting_in_log"]) == 2 * MINUTES
    told = json.loads(
        invoked(main, *arguments, "--design", "segments", "--key-life", "7d", "--reads", "0", "--json").output
    )
    assert {each["sizing"]["design"] for each in told["sizes"]} == {"segments"}
    assert {each["demand"]["key_days"] for each in told["sizes"]} == {7}
    refused = invoked(main, *arguments, "--lost-region", "20-17")
    assert "hours of a day are like 17-20" in re.sub(r"\s+", " ", refused.stderr)


def test_a_rhythm_swings_no_further_than_to_nobody():
    """In words."""
    with pytest.raises(ValueError, match="swings by 0 to 1"):
        Rhythm(swing=1.1)
