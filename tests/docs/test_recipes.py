"""The recipes work as they stand there, from plan to figures: only addresses, keys, ids and dates are put in."""

import re
import subprocess
import sys
import time
from itertools import product
from math import exp, log
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
from changeling_aggregator.cli.access import write_private_key
from changeling_aggregator.server import real_time
from changeling_aggregator.store import SnapshotProgress, Store, StratumCounts
from changeling_protocol import OFFSETS, AtMost, Question, Survey
from changeling_simulations import Population, sample_tallies

from tests.command_line import changeling as main

from ..aggregator.serving import ServerHere
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


def holding(survey, shares, entries, generator):
    """A population whose entries hold answers with these shares, all along."""
    counts = generator.multinomial(entries, shares)
    states = np.zeros((len(shares), survey.calendar.periods + 1), np.uint16)
    states[:, 1:] = np.arange(1, len(shares) + 1)[:, None]
    return Population(survey.answers, states, states, counts)


def answered(path, survey, arms, entries):
    """A store with what the entries of each arm have said of all periods that are over, as it is folded.

    arms: of each stratum the shares of the answers, to every question.
    """
    generator, lots, last = np.random.default_rng(SEED), {}, weeks_over(survey.calendar.periods)
    group_of = {number: at for at in range(len(survey.plan.groups)) for number, _ in survey.plan.numbered(at)}
    for (stratum, arm), question in product(enumerate(arms), range(len(survey.questions))):
        view, tracks = survey.about(question), survey.plan.numbers_about(question)
        tallies = sample_tallies(holding(view, arm[question], entries, generator), view, generator)
        for (group, period), attendance in tallies.attendance.items():
            if period <= last:
                lots.setdefault((period, group, stratum), StratumCounts(attendance))
        for (track, node), tally in tallies.items():
            end = view.plan.tracks[track].node(node).end
            if end <= last:
                lots[end, group_of[tracks[track]], stratum].nodes[tracks[track], node] = tally
    store = Store.open(path)
    with store.transaction() as writing:
        writing.add_survey(survey.id, survey.signed_by(AUTHORITY), public=True)
        writing.put_snapshots(survey.id, SnapshotProgress(1, last, last, 0), lots)
    store.close()


def weeks_over(periods):
    """All but the last week are over; of one week that week."""
    return max(1, periods - 1)


def lived(recipe, run, folder, arms, entries=ENTRIES):
    """What the plan's command printed, and what those of reading did, where most of the survey's weeks are over.

    The recipe's app runs in between, and what it has for a notebook after it.
    """
    plan, sign, read = map(commands_of, parts(recipe, "console"))
    periods = int(plan[0][plan[0].index("--periods") + 1])
    begun = time.strftime("%Y-%m-%d", time.gmtime(time.time() - weeks_over(periods) * WEEK - 2 * 86_400))
    planned = run([*plan[0], "--start", begun])
    run(sign[0])
    survey = Survey.from_signed(Path(sign[0][-1]).read_bytes(), PINNED)
    answered(folder / "server.db", survey, arms, entries)
    with ServerHere(folder, clock=real_time) as server:
        at_server = {"https://surveys.example.org": server.url}
        home = {"HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_STATE_HOME": str(folder)}
        printed = []
        for program in parts(recipe, "python"):
            program = program.replace("https://surveys.example.org", server.url)
            program = program.replace('"0a1b…"', f'"{survey.id.hex()}"').replace('"…"', f'"{PINNED[0].hex()}"')
            command = [sys.executable, "-W", "error", "-c", program]
            done = subprocess.run(command, env=home, cwd=folder, capture_output=True, text=True)
            assert (done.returncode, done.stderr) == (0, "")
            printed += [done.stdout] * bool(done.stdout)
        return planned, [*(run(words, **at_server) for words in read), *printed]


@pytest.mark.heavy
def test_how_many_use_a_feature(run, tmp_path):
    """The devices it takes are those of the page; 30% use it, and nothing has changed since the fourth week."""
    recipe = "How many of our users use feature X?"
    planned, (now, since) = lived(recipe, run, tmp_path, [[(0.3, 0.7)]])
    assert re.search(r"takes ([\d,]+) devices", RECIPES[recipe])[1] in planned
    share = float(re.search(r"yes .*?([\d.]+)%", now)[1])
    assert abs(share - 30) < 4 * 0.5
    assert "since the end of period 4" in since
    assert since.count("p=") >= 7


@pytest.mark.heavy
def test_did_b_change_it(run, tmp_path):
    """The devices are those of the page; B has five points more of one answer from the start, which is no noise."""
    recipe = "Did B change it?"
    planned, (arms, changes) = lived(recipe, run, tmp_path, [[(0.5, 0.3, 0.2)], [(0.45, 0.35, 0.2)]])
    text = " ".join(RECIPES[recipe].split())
    assert re.search(r"takes ([\d,]+) devices", text)[1] in planned
    assert re.search(r"; ([\d,]+) for an answer that every second", text)[1] in planned
    assert "p=<.001" in arms
    assert "since the end of period 1" in changes
    assert "p=<.001" not in changes


@pytest.mark.heavy
def test_how_many_minutes_a_week(run, tmp_path):
    """The error is that of the page; the mean of log-normal minutes is within four of it, and the median near 60."""
    recipe = "How many minutes a week?"
    levels = [0, 30, 60, 120, 240, 480, 960]
    number = Question.of_number("minutes", "?", [str(each) for each in levels], AtMost(4), "min")
    minutes = np.array([exp(NormalDist(log(60), 0.8).inv_cdf((at + 0.5) / 1000)) for at in range(1000)])
    arms = []
    for offset in range(OFFSETS):
        answers = np.array([number.rounded(each, offset).answer for each in minutes.tolist()])
        arms.append([np.bincount(answers, minlength=len(levels)) / 1000])
    planned, (printed,) = lived(recipe, run, tmp_path, arms, ENTRIES // OFFSETS)
    error = re.search(r"±([\d.]+) min", RECIPES[recipe])[1]
    assert f"Error of the mean: ±{error} min" in planned
    rows = re.findall(r"│ 11 .*?│ ([\d.]+).*?│ ([\d.]+)", printed)
    mean, median = map(float, rows[0])
    assert abs(mean - np.clip(minutes, 0, 960).mean()) < 4 * float(error)
    assert 45 < median < 75


@pytest.mark.heavy
def test_which_of_thirty_settings(run, tmp_path):
    """The devices and the error are those of the page, and settings are listed from the most used on: one in thirty,
    two in thirty, … use them, so of those that are three or more apart none changes places."""
    recipe = "Which of thirty settings do they use?"
    names = [f"setting-{at}" for at in range(29)] + ["dark-mode"]
    (tmp_path / "settings.txt").write_text("\n".join(names))
    exec(parts(recipe, "python")[0], {})
    shares = [((at + 1) / 31, 1 - (at + 1) / 31) for at in range(30)]
    planned, (dark, listed) = lived(recipe, run, tmp_path, [shares])
    assert re.search(r"takes ([\d,]+) devices", " ".join(RECIPES[recipe].split()))[1] in planned
    assert "±0.624 points" in planned
    assert abs(float(re.search(r"on .*?([\d.]+)%", dark)[1]) - 3000 / 31) < 4 * 0.624
    places = [names.index(line.split(":")[0]) for line in listed.splitlines()]
    assert sorted(places) == list(range(30))
    assert all(abs(place - (29 - at)) <= 2 for at, place in enumerate(places))
