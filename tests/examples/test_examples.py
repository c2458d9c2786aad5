"""The examples run as they stand, each as the user it is written for would run it; and what the demo prints."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from changeling_central import read_rows
from changeling_client.testing import FakeServer, make_client, make_survey
from changeling_statistics import read_survey
from rich.console import Console

from demo.report import ledger_table

from ..commands.test_dev import running

EXAMPLES = Path(__file__).parents[2] / "examples"


def ran(name, *words, folder):
    """What a script prints."""
    command = [sys.executable, str(EXAMPLES / name), *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def development(tmp_path_factory):
    """`changeling dev`: its URL, its authority and its survey, as it prints them."""
    with running(tmp_path_factory.mktemp("development"), "--answers", "tea,coffee,neither") as dev:
        dev.wait_for("period +heard")
        yield dev.told


@pytest.mark.heavy
def test_an_app_records_and_reports_and_a_data_team_reads_the_results(development, tmp_path):
    """The app's answer of the first half, then that of the second: one device shows, as it is for development."""
    url, _, survey = development
    printed = ran("app.py", *development, "--seconds", "14", folder=tmp_path)
    assert "the answer on this device is coffee" in printed
    answered = int(re.search(r"Done with up to period (\d+); 0 to be sent, 0 too late", printed)[1])
    assert answered >= 3  # of some seven periods; a slow machine answers several at once
    assert "1 sent, 0 waiting" in printed
    read = ran("read_results.py", url, survey, folder=tmp_path)
    rows = [line for line in read.splitlines() if line.startswith("│")]
    shown = [[int(value) for value in re.findall(r"(-?\d+) \(", row)] for row in rows]
    assert [1, 0, 0] in shown
    assert re.search(rf"from \d+ reports on {len(rows)} nodes", read)


@pytest.mark.heavy
def test_an_app_says_why_it_takes_no_part(development, tmp_path):
    """A survey that another authority signed is refused in one line, after what the SDK logs."""
    url, _, survey = development
    command = [sys.executable, str(EXAMPLES / "app.py"), url, "00" * 31 + "01", survey]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(
        "this app takes no part: BadSurvey: none of the pinned authority keys"
    )


@pytest.mark.heavy
def test_a_designer_finds_a_plan_and_tries_it(tmp_path):
    """The plans side by side, the best one's results beside the truth, and a survey that can be signed."""
    printed = ran("design_a_survey.py", folder=tmp_path)
    assert "devices for ± 1 point" in printed
    shares = re.findall(r"(\d+\.\d)% in truth, +\d+\.\d% published \((\d+\.\d) to (\d+\.\d)\)", printed)
    assert len(shares) == 3
    assert read_survey(tmp_path / "survey.json").minimum == 100
    assert all(
        2 * abs(float(truth) - (float(low) + float(high)) / 2) < 2.5 * (float(high) - float(low))
        for truth, low, high in shares
    )


@pytest.mark.heavy
def test_an_analyst_gets_the_three_figures_in_order(tmp_path):
    """Shuffled <= approximate <= pure, for every length of the survey; the curve falls."""
    printed = ran("privacy_accounting.py", folder=tmp_path)
    rows = re.findall(r"^ *(\d+) +([\d.]+) +([\d.]+) +([\d.]+)$", printed, re.MULTILINE)
    assert len(rows) == 5
    for _, pure, approximate, shuffled in rows:
        assert float(shuffled) <= float(approximate) <= float(pure)
    curve = [float(delta) for delta in re.findall(r"(\d\.\de-?\+?\d\d)$", printed, re.MULTILINE)]
    assert curve == sorted(curve, reverse=True)
    assert len(curve) == 6


@pytest.mark.heavy
def test_a_curator_publishes_a_week_and_goes_on_where_it_stopped(tmp_path):
    """168 hours; run again nothing more is drawn, and the same is shown."""
    printed, again = (ran("curator.py", folder=tmp_path) for _ in range(2))
    assert printed.startswith("168 hours published in flights.csv\nepsilon 1, ")
    assert again == printed.replace("168 hours", "0 hours", 1)
    assert len(read_rows(tmp_path / "flights.csv")) == 168


def test_clients_with_equal_ledgers_share_a_row(tmp_path):
    """Two whose answers have arrived, and one whose answer waits."""
    server, asked = FakeServer(), make_survey(periods=10, epsilon=3)
    server.publish(asked)
    clients = [make_client(tmp_path / name, server) for name in "abc"]
    handles = [client.join(asked.id, signed=server.signed(asked)) for client in clients]
    server.clock.advance(days=1)
    for client in clients:
        if client is clients[-1]:
            server.go_offline()
        client.flush()
    console = Console(width=110)
    with console.capture() as printed:
        console.print(ledger_table(handles))
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in printed.get().splitlines() if "│" in line]
    assert [(row[0], *row[2:]) for row in rows] == [("2", "1", "0", "0"), ("1", "1", "1", "0")]
