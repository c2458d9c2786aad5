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
from changeling_aggregator.cli import write_private_key
from changeling_aggregator.server import real_time
from changeling_aggregator.store import SnapshotProgress, Store, StratumCounts
from changeling_protocol import OFFSETS, AtMost, Question, Survey
from changeling_simulations import Population, sample_tallies

from ..aggregator.serving import ServerHere
from ..protocol.examples import AUTHORITY, PINNED
from .blocks import blocks, commands_of, ran, section

PAGE, WEEK = "docs/recipes.md", 7 * 86_400
ENTRIES = 20_000
SEED = 1
FALSE_ALARM = 1e-4
"""The chance that what a recipe's figures are held to fails, were the seed drawn anew: four standard errors."""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with the authority's key, which commands run in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CHANGELING_TOKEN", raising=False)
    write_private_key(tmp_path / "authority.key", AUTHORITY)
    return tmp_path


def holding(survey, shares, entries, generator):
    """A population whose entries hold answers with these shares, all along."""
    held = generator.choice(len(shares), (entries, 1), p=shares) + 1
    return Population.of_states(survey.answers, np.repeat(held, survey.calendar.periods, axis=1))


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


def lived(recipe, folder, arms, entries=ENTRIES):
    """The recipe, what the plan's command prints, and what those of reading do, each as one line.

    When they read, most of the survey's weeks are over. The recipe's app runs before that, a notebook's code after it.
    """
    plan, sign, read = map(commands_of, blocks(PAGE, "console", recipe))
    periods = int(plan[0][plan[0].index("--periods") + 1])
    begun = time.strftime("%Y-%m-%d", time.gmtime(time.time() - weeks_over(periods) * WEEK - 2 * 86_400))
    planned = ran([*plan[0], "--start", begun])
    ran(sign[0])
    survey = Survey.from_signed(Path(sign[0][-1]).read_bytes(), PINNED)
    answered(folder / "server.db", survey, arms, entries)
    with ServerHere(folder, clock=real_time) as server:
        at_server = {"https://surveys.example.org": server.url}
        home = {"HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_STATE_HOME": str(folder)}
        printed = []
        for program in blocks(PAGE, "python", recipe):
            program = program.replace("https://surveys.example.org", server.url)
            program = program.replace('"0a1b…"', f'"{survey.id.hex()}"').replace('"…"', f'"{PINNED[0].hex()}"')
            command = [sys.executable, "-W", "error", "-c", program]
            done = subprocess.run(command, env=home, cwd=folder, capture_output=True, text=True)
            assert (done.returncode, done.stderr) == (0, "")
            printed += [done.stdout] * bool(done.stdout)
        shown = [" ".join(ran(words, at_server).split()) for words in read]
    return " ".join(section(PAGE, recipe).split()), " ".join(planned.split()), [*shown, *printed]


@pytest.mark.heavy
def test_how_many_use_a_feature(here):
    """The devices it takes are those of the page; 30% use it, and nothing has changed since the fourth week."""
    text, planned, (now, since) = lived("How many of our users use feature X?", here, [[(0.3, 0.7)]])
    assert re.search(r"takes ([\d,]+) devices", text)[1] in planned
    share = float(re.search(r"yes .*?([\d.]+)%", now)[1])
    assert abs(share - 30) < 4 * 0.5
    assert "since the end of period 4" in since
    assert since.count("p=") >= 7


@pytest.mark.heavy
def test_did_b_change_it(here):
    """The devices are those of the page; B has five points more of one answer from the start, which is no noise."""
    text, planned, (arms, changes) = lived("Did B change it?", here, [[(0.5, 0.3, 0.2)], [(0.45, 0.35, 0.2)]])
    assert re.search(r"takes ([\d,]+) devices", text)[1] in planned
    assert re.search(r"; ([\d,]+) for an answer that every second", text)[1] in planned
    assert "p=<.001" in arms
    assert "since the end of period 1" in changes
    assert "p=<.001" not in changes


@pytest.mark.heavy
def test_how_many_minutes_a_week(here):
    """The error is that of the page; the mean of log-normal minutes is within four of it, and the median near 60."""
    levels = [0, 30, 60, 120, 240, 480, 960]
    number = Question.of_number("minutes", "?", [str(each) for each in levels], AtMost(4), "min")
    minutes = np.array([exp(NormalDist(log(60), 0.8).inv_cdf((at + 0.5) / 1000)) for at in range(1000)])
    arms = []
    for offset in range(OFFSETS):
        answers = np.array([number.rounded(each, offset).answer for each in minutes.tolist()])
        arms.append([np.bincount(answers, minlength=len(levels)) / 1000])
    text, planned, (printed,) = lived("How many minutes a week?", here, arms, ENTRIES // OFFSETS)
    error = re.search(r"±([\d.]+) min", text)[1]
    assert f"Error of the mean: ±{error} min" in planned
    rows = re.findall(r"│ 11 .*?│ ([\d.]+).*?│ ([\d.]+)", printed)
    mean, median = map(float, rows[0])
    assert abs(mean - np.clip(minutes, 0, 960).mean()) < 4 * float(error)
    assert 45 < median < 75


@pytest.mark.heavy
def test_which_of_thirty_settings(here):
    """The devices and the error are those of the page, and settings are listed from the most used on: one in thirty,
    two in thirty, … use them, so of those that are three or more apart none changes places."""
    recipe = "Which of thirty settings do they use?"
    names = [f"setting-{at}" for at in range(29)] + ["dark-mode"]
    (here / "settings.txt").write_text("\n".join(names))
    exec(blocks(PAGE, "python", recipe)[0], {})
    shares = [((at + 1) / 31, 1 - (at + 1) / 31) for at in range(30)]
    text, planned, (dark, listed) = lived(recipe, here, [shares])
    assert re.search(r"takes ([\d,]+) devices", text)[1] in planned
    assert "±0.624 points" in planned
    assert abs(float(re.search(r"on .*?([\d.]+)%", dark)[1]) - 3000 / 31) < 4 * 0.624
    places = [names.index(line.split(":")[0]) for line in listed.splitlines()]
    assert sorted(places) == list(range(30))
    assert all(abs(place - (29 - at)) <= 2 for at, place in enumerate(places))
