"""Sweeps: a grid of a TOML file, rows that hang on nothing but their settings, and the same bytes after a kill."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars
import pytest
from changeling_simulations.sweep import partial_rows, read_sweep, simulated, sweep

from tests.command_line import changeling_sim as main
from tests.command_line import invoked

SMALL = """
seed = 3
surveys = 1
answers = 2
periods = 3
at_most = [1, 2]
changes = 0.5
entries = 500
epsilon = [0.0001, 4]
"""


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    path = tmp_path / "experiment.toml"
    path.write_text(SMALL)
    return path


def test_the_grid_is_in_the_order_of_the_file(experiment: Path) -> None:
    cells = read_sweep(experiment)
    assert [(cell.at_most, cell.epsilon) for cell in cells] == [(1, "0.0001"), (1, "4"), (2, "0.0001"), (2, "4")]


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"epsilon": "[]"}, "epsilon must be a number"),
        ({"epsilon": "true"}, "epsilon must be a number"),
        ({"epsilon": "'four'"}, "epsilon must be a number"),
        ({"epsilon": "0"}, "epsilon must be above 0"),
        ({"entries": "1.5"}, "entries must be a number"),
        ({"changes": "9"}, "changes are 0 to 2"),
        ({"weeks": "2"}, "no setting: weeks"),
        ({"world": "'flat'"}, "world is one of drift, shift, seasons, heavy, got 'flat'"),
        ({"epsilon": None}, "missing: epsilon"),
        ({"epsilon": "1 1"}, "no TOML"),
    ],
)
def test_an_experiment_that_cannot_be_is_refused(tmp_path, changed, complaint):
    settings = {"answers": 2, "periods": 3, "at_most": 1, "changes": 0, "entries": 500, "epsilon": 1} | changed
    path = tmp_path / "experiment.toml"
    path.write_text("\n".join(f"{name} = {value}" for name, value in settings.items() if value is not None))
    with pytest.raises(ValueError, match=complaint):
        read_sweep(path)


def test_a_row_hangs_on_its_settings_alone(experiment: Path) -> None:
    cells = read_sweep(experiment)
    rows = [simulated(cell) for cell in cells]
    assert simulated(cells[1]) == rows[1]
    assert rows[0]["reason"]
    assert rows[0]["noise"] is None
    assert 0 < rows[1]["noise"] <= rows[1]["error"]


def test_a_question_among_several_is_known_less_well(experiment: Path) -> None:
    """On one budget: three questions at epsilon 4 have an error that one alone has not."""
    experiment.write_text(SMALL.replace("[0.0001, 4]", "4").replace("[1, 2]", "1") + "questions = [1, 3]")
    alone, among = map(simulated, read_sweep(experiment))
    assert (alone["questions"], among["questions"]) == (1, 3)
    assert among["predicted"] > 1.2 * alone["predicted"]
    assert among["noise"] > 0


def test_rows_that_were_written_are_not_written_over(experiment: Path, tmp_path: Path) -> None:
    """One for each cell; a sweep to the same file is refused, where nobody can be asked."""
    output = tmp_path / "out.csv"
    command = ("sweep", str(experiment), "-o", str(output), "--processes", "1")
    assert invoked(main, *command).exit_code == 0
    swept = output.read_bytes()
    assert swept.count(b"\n") == 5
    again = invoked(main, *command)
    assert (again.exit_code, output.read_bytes()) == (1, swept)
    assert "exists, and is left as it is" in again.stderr


@pytest.mark.heavy
def test_a_killed_sweep_goes_on_to_the_same_bytes(experiment: Path, tmp_path: Path) -> None:
    experiment.write_text(SMALL.replace("surveys = 1", "surveys = 40"))
    cells = read_sweep(experiment)
    whole, output = tmp_path / "whole.parquet", tmp_path / "killed.parquet"
    assert len(list(sweep(cells, whole, processes=1))) == len(cells)
    command = [sys.executable, "-m", "changeling_simulations", "sweep", str(experiment), "-o", str(output)]
    child = subprocess.Popen([*command, "--processes", "1"], start_new_session=True)
    partial = partial_rows(output)
    while child.poll() is None and not (partial.exists() and partial.read_bytes().count(b"\n")):
        time.sleep(0.005)
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    assert not output.exists()
    with partial.open("ab") as file:
        file.write(b'["cut off')
    assert 0 < len(list(sweep(cells, output, processes=2))) < len(cells)
    assert output.read_bytes() == whole.read_bytes()
    assert not partial.exists()
    assert polars.read_parquet(output)["epsilon"].len() == len(cells)
