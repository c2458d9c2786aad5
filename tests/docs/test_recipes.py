"""The recipes work as they stand there, from plan to figures: only addresses, keys, ids and dates are put in."""

import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from changeling_aggregator.cli.access import write_private_key
from changeling_aggregator.store import SnapshotProgress, Store, StratumCounts
from changeling_commands.__main__ import main
from changeling_protocol import Survey
from changeling_simulations import Population, sample_tallies

from ..aggregator.serving import ServerProcess
from ..protocol.examples import AUTHORITY, PINNED
from .blocks import ROOT, commands_of

PAGE, WEEK = (ROOT / "docs/recipes.md").read_text(), 7 * 86_400
RECIPES = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
ENTRIES = 20_000
SEED = 1
FALSE_ALARM = 1e-4
"""The chance that what a recipe's figures are held to fails, were the seed drawn anew: four standard errors."""


def parts(recipe, language):
    return re.findall(rf"```{language}\n(.*?)```", RECIPES[recipe], re.DOTALL)


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs a command of a recipe in a folder of its own; returns what it printed, on one line."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("CHANGELING_TOKEN", "")
    monkeypatch.delenv("CHANGELING_TOKEN")
    write_private_key(tmp_path / "authority.key", AUTHORITY)

    def run_one(words, **put_in):
        replaced = [put_in.get(word, word) for word in words[1:]]
        code = main(replaced)
        printed = capsys.readouterr()
        assert code == 0, printed.err
        return " ".join(printed.out.split())

    return run_one


def holding(survey, shares, generator):
    """A population whose entries hold answers with these shares, all along."""
    counts = generator.multinomial(ENTRIES, shares)
    states = np.zeros((len(shares), survey.calendar.periods + 1), np.uint16)
    states[:, 1:] = np.arange(1, len(shares) + 1)[:, None]
    return Population(survey.answers, states, states, counts)


def answered(path, survey, arms):
    """A store with what the entries of each arm have said of all periods but the last, as it is folded."""
    generator, lots, last = np.random.default_rng(SEED), {}, survey.calendar.periods - 1
    group_of = {number: at for at in range(len(survey.plan.groups)) for number, _ in survey.plan.numbered(at)}
    for stratum, shares in enumerate(arms):
        tallies = sample_tallies(holding(survey, shares, generator), survey, generator)
        for (group, period), attendance in tallies.attendance.items():
            if period <= last:
                lots[period, group, stratum] = StratumCounts(attendance)
        for (track, node), tally in tallies.items():
            end = survey.plan.tracks[track].node(node).end
            if end <= last:
                lots[end, group_of[track], stratum].nodes[track, node] = tally
    store = Store.open(path)
    with store.transaction() as writing:
        writing.add_survey(survey.id, survey.signed_by(AUTHORITY), public=True)
        writing.put_snapshots(survey.id, 1, lots, [])
        writing.put_looked(survey.id, SnapshotProgress(1, last, last, 0))
    store.close()


def lived(recipe, run, folder, arms):
    """What the plan's command printed, and those of reading, of a survey that most of its weeks are over of."""
    plan, sign, read = map(commands_of, parts(recipe, "console"))
    periods = int(plan[0][plan[0].index("--periods") + 1])
    begun = time.strftime("%Y-%m-%d", time.gmtime(time.time() - (periods - 1) * WEEK - 2 * 86_400))
    planned = run([*plan[0], "--start", begun])
    run(sign[0])
    survey = Survey.from_signed(Path(sign[0][-1]).read_bytes(), PINNED)
    answered(folder / "server.db", survey, arms)
    with ServerProcess(folder) as server:
        at_server = {"https://surveys.example.org": server.url}
        app = parts(recipe, "python")[0].replace("https://surveys.example.org", server.url)
        app = app.replace('"0a1b…"', f'"{survey.id.hex()}"').replace('"…"', f'"{PINNED[0].hex()}"')
        home = {"HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_STATE_HOME": str(folder)}
        done = subprocess.run([sys.executable, "-W", "error", "-c", app], env=home, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        return planned, [run(words, **at_server) for words in read]


@pytest.mark.heavy
def test_how_many_use_a_feature(run, tmp_path):
    """The devices it takes are those of the page; 30% use it, and nothing has changed since the fourth week."""
    recipe = "How many of our users use feature X?"
    planned, (now, since) = lived(recipe, run, tmp_path, [(0.3, 0.7)])
    assert re.search(r"takes ([\d,]+) devices", RECIPES[recipe])[1] in planned
    share = float(re.search(r"yes .*?([\d.]+)%", now)[1])
    assert abs(share - 30) < 4 * 0.5
    assert "since the end of period 4" in since
    assert since.count("p=") >= 7


@pytest.mark.heavy
def test_did_b_change_it(run, tmp_path):
    """The devices are those of the page; B has five points more of one answer from the start, which is no noise."""
    recipe = "Did B change it?"
    planned, (arms, changes) = lived(recipe, run, tmp_path, [(0.5, 0.3, 0.2), (0.45, 0.35, 0.2)])
    text = " ".join(RECIPES[recipe].split())
    assert re.search(r"takes ([\d,]+) devices", text)[1] in planned
    assert re.search(r"; ([\d,]+) for an answer that every second", text)[1] in planned
    assert "p=<.001" in arms
    assert "since the end of period 1" in changes
    assert "p=<.001" not in changes
