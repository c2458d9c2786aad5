"""The capacity command: what its table of costs multiplies to, and the design that has room for it."""

import json
from types import SimpleNamespace

import pytest
from changeling_protocol import Calendar
from changeling_statistics import write_survey

from tests.command_line import changeling_sim as main
from tests.command_line import invoked
from tests.protocol.examples import survey

DAY = 86_400
DAILY = survey(calendar=Calendar(0, DAY, 16), grace=2 * DAY)
HOURLY = survey(calendar=Calendar(0, 3600, 48), grace=6 * 3600)
DESIGNS = ("store", "segments", "spark")


@pytest.fixture
def sized(tmp_path):
    """All figures that are printed of a survey, for each number of devices."""

    def sized(asked, *devices, **options):
        write_survey(tmp_path / "survey.json", asked)
        words = [word for each in devices for word in ("--devices", f"{each}")]
        words += [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", f"{value}")]
        told = invoked(main, "capacity", str(tmp_path / "survey.json"), *words, "--json")
        return [SimpleNamespace(**each["demand"], **each["sizing"]) for each in json.loads(told.stdout)["sizes"]]

    return sized


def test_a_demand_follows_from_the_survey_and_how_often_apps_run(sized):
    """A daily survey: an envelope a day, ids of three closings; an hourly one has 24 closings in it."""
    (daily,), (hourly,) = sized(DAILY, 1000), sized(HOURLY, 1000)
    assert (daily.envelopes, daily.closings, daily.ids, daily.kept_days) == (1000, 1, 3000, 2)
    assert (hourly.envelopes, hourly.closings, hourly.ids) == (1000, 24, 7000)
    assert hourly.envelope_bytes > daily.envelope_bytes + 23 * 19
    (often,) = sized(HOURLY, 1000, uploads_a_day=100, retention="1d")
    assert (often.envelopes, often.closings, often.kept_days) == (24_000, 1, 1)


def test_a_size_grows_with_devices_and_names_what_breaks_first(sized):
    """Ten times the devices, ten times the cores to accept, or less where folds take something anyway; tallies stay."""
    small, large, larger = sized(DAILY, 10**6, 10**7, 10**8, design="store")
    assert large.cores["accept"] == pytest.approx(10 * small.cores["accept"])
    assert all(1 < large.cores[stage] / small.cores[stage] < 10.01 for stage in small.cores)
    assert larger.cores["count"] > 10 * large.cores["count"]  # ids that are not remembered are read again
    assert max(large.limits.values()) < 1 < next(iter(larger.limits.values())) == max(larger.limits.values())
    assert larger.tally_bytes == large.tally_bytes
    (on_one_core,), (huge,) = sized(DAILY, 10**9, cores=1), sized(DAILY, 10**9)
    assert on_one_core.machines > huge.machines


def test_the_design_is_the_first_that_has_room(sized):
    """One store while nothing is over; segments where only a disk or accepting is; Spark for all else."""
    small, huge = sized(DAILY, 10**6, 10**9)
    (kept,) = sized(DAILY, 10**6, retention="9000d")
    assert [name for name, times in kept.limits.items() if times > 1] == ["one disk"]
    assert (small.design, kept.design, huge.design) == DESIGNS


@pytest.mark.parametrize("design", DESIGNS)
def test_objects_are_paid_for_and_spark_reads_all_ids_that_are_kept(sized, design):
    """A store costs no PUTs. A longer grace costs processors on Spark, and none of them in one store."""
    (paid,), (free,) = (sized(DAILY, 10**6, design=design, put=price) for price in (1.0, 0.0))
    assert paid.month - free.month == pytest.approx(paid.puts * DAY * 30.4)
    assert (paid.puts == 0) == (design == "store")
    graces = (survey(calendar=Calendar(0, DAY, 60), grace=days * DAY) for days in (2, 14))
    (short,), (long,) = (sized(each, 10**8, design=design) for each in graces)
    assert (short.cores["count"] == long.cores["count"]) == (design != "spark")
    assert long.stored > short.stored


@pytest.mark.parametrize("design", DESIGNS)
def test_a_store_is_given_settings_for_what_waits_and_what_is_kept(sized, design):
    """A run an hour may fail once in the busiest hours; a day's envelopes wait nowhere, and what is kept has room."""
    hours = 2 if design == "spark" else 1
    for each in (sizes := sized(DAILY, 10**4, 10**6, 10**8, design=design)):
        assert 3600 * hours * each.peak < each.most_waiting < 3600 * (hours + 1) * each.peak
        assert 2**30 * each.most_store > each.stored + each.most_waiting * each.envelope_bytes
    assert sizes[-1].most_waiting > 10**6


def test_the_table_has_the_figures_and_what_one_server_lacks(sized, tmp_path):
    """One column a size; a line below says which design has room."""
    _, huge = sized(DAILY, 10**6, 10**9)
    arguments = ("capacity", str(tmp_path / "survey.json"), "--devices", "1e6", "--devices", "1e9")
    shown = invoked(main, *arguments)
    assert shown.exit_code == 0, shown.output
    for part in ("1,000,000,000", "cores to open", f"{huge.machines:,}", "has room for it", "lacks room for"):
        assert part in shown.output
