"""The capacity command: what its table of costs multiplies to, and the design that has room for it."""

import json

import pytest
from changeling_protocol import Calendar
from changeling_simulations.capacity import Machine, ServerDesign, demanded, sized
from changeling_statistics import write_survey

from tests.command_line import changeling_sim as main
from tests.command_line import invoked
from tests.protocol.examples import survey

DAY = 86_400
DAILY = survey(calendar=Calendar(0, DAY, 16), grace=2 * DAY)
HOURLY = survey(calendar=Calendar(0, 3600, 48), grace=6 * 3600)


def test_a_demand_follows_from_the_survey_and_how_often_apps_run():
    """A daily survey: an envelope a day, ids of three closings; an hourly one has 24 closings in it."""
    daily = demanded(DAILY, 1000)
    assert (daily.envelopes, daily.closings, daily.ids, daily.kept_days) == (1000, 1, 3000, 2)
    hourly = demanded(HOURLY, 1000)
    assert (hourly.envelopes, hourly.closings, hourly.ids) == (1000, 24, 7000)
    assert hourly.envelope_bytes > daily.envelope_bytes + 23 * 19
    often = demanded(HOURLY, 1000, uploads_a_day=100, retention=DAY)
    assert (often.envelopes, often.closings, often.kept_days) == (24_000, 1, 1)
    with pytest.raises(ValueError, match="devices whose apps run"):
        demanded(DAILY, 0)


def test_a_size_grows_with_devices_and_names_what_breaks_first():
    """Ten times the devices, ten times the cores to accept, or less where folds take something anyway; tallies stay."""
    small, large, larger = (sized(demanded(DAILY, devices), ServerDesign.STORE) for devices in (10**6, 10**7, 10**8))
    assert large.cores["accept"] == pytest.approx(10 * small.cores["accept"])
    assert all(1 < large.cores[stage] / small.cores[stage] < 10.01 for stage in small.cores)
    assert larger.cores["count"] > 10 * large.cores["count"]  # ids that are not remembered are read again
    assert max(large.limits.values()) < 1 < next(iter(larger.limits.values())) == max(larger.limits.values())
    assert demanded(DAILY, 10**8).tally_bytes == demanded(DAILY, 10**7).tally_bytes
    huge = demanded(DAILY, 10**9)
    assert sized(huge, machine=Machine(cores=1)).machines > sized(huge).machines


def test_the_design_is_the_first_that_has_room():
    """One store while nothing is over; segments where only a disk or accepting is; Spark for all else."""
    disk = Machine(disk=1)
    designs = [sized(demanded(DAILY, 10**6), machine=each).design for each in (Machine(), disk)]
    assert [*designs, sized(demanded(DAILY, 10**9)).design] == [
        ServerDesign.STORE,
        ServerDesign.SEGMENTS,
        ServerDesign.SPARK,
    ]


def test_objects_are_paid_for_and_spark_reads_all_ids_that_are_kept():
    """A store costs no PUTs. A longer grace costs processors on Spark, and none of them in one store."""
    for design in ServerDesign:
        paid, free = (sized(demanded(DAILY, 10**6), design, Machine(put=price)) for price in (1.0, 0.0))
        assert paid.month - free.month == pytest.approx(paid.puts * DAY * 30.4)
        assert (paid.puts == 0) == (design is ServerDesign.STORE)
    short, long = (demanded(survey(calendar=Calendar(0, DAY, 60), grace=days * DAY), 10**8) for days in (2, 14))
    for design, same in ((ServerDesign.SPARK, False), (ServerDesign.STORE, True)):
        counting = [sized(each, design).cores["count"] for each in (short, long)]
        assert (counting[0] == counting[1]) == same
        assert sized(long, design).stored > sized(short, design).stored


def test_a_store_is_given_settings_for_what_waits_and_what_is_kept():
    """A run an hour may fail once in the busiest hours; a day's envelopes wait nowhere, and what is kept has room."""
    for devices in (10**4, 10**6, 10**8):
        demand = demanded(DAILY, devices)
        for design in ServerDesign:
            sizing = sized(demand, design)
            hours = 2 if design is ServerDesign.SPARK else 1
            assert 3600 * hours * sizing.peak < sizing.most_waiting < 3600 * (hours + 1) * sizing.peak
            assert 2**30 * sizing.most_store > sizing.stored + sizing.most_waiting * demand.envelope_bytes
    assert sized(demanded(DAILY, 10**8), ServerDesign.SPARK).most_waiting > 10**6


def test_the_command_prints_sizes(tmp_path):
    """As a table, and as JSON with the same figures."""
    write_survey(tmp_path / "survey.json", DAILY)
    arguments = ("capacity", str(tmp_path / "survey.json"), "--devices", "1e6", "--devices", "1e9")
    shown = invoked(main, *arguments)
    assert shown.exit_code == 0, shown.output
    for part in ("1,000,000,000", "cores to open", "machines", "lacks room for"):
        assert part in shown.output
    told = json.loads(invoked(main, *arguments, "--json").output)
    assert [each["demand"]["devices"] for each in told["sizes"]] == [10**6, 10**9]
    assert f"{told['sizes'][1]['sizing']['machines']:,}" in shown.output
    told = json.loads(invoked(main, *arguments, "--design", "segments", "--cores", "2", "--json").output)
    assert {each["sizing"]["design"] for each in told["sizes"]} == {"segments"}
