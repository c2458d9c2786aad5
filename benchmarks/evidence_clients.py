"""Measure 4 of the evidence: the sampler against real clients that send to a real server over HTTP, node by node.

One client holds a thousand entries, whose lives are drawn beforehand; the server folds what they sent. The sampler
draws each different life a million times, which gives the chances of each symbol on each node, and so the mean and the
covariance of what the thousand send; a chi-squared test for each node holds against them what they sent.
"""

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import numpy as np
from changeling_aggregator.store import Store
from changeling_client import Client
from changeling_protocol import OFFSETS, AtMost, Calendar, Question, Survey
from changeling_simulations import Population, sample_tallies
from changeling_simulations.population import States
from changeling_statistics import Floats, Tallies, Wish, optimal_plan, steady_changes, write_survey
from numpy.typing import NDArray
from scipy.stats import chi2

from demo.deployment import Deployment, deployed
from demo.replay import Clock, device

ENTRIES, PERIODS, MANY, START = 1000, 8, 1_000_000, 1_900_000_000
ENOUGH = 5
"""A slot is looked at where its count has so large a variance."""
LEVELS = ("0", "20", "60", "120")
FALSE_ALARM = 1e-6
"""The chance that one right node is counted as off. Over some hundred nodes it is a ten-thousandth."""


def compared() -> dict[str, float | None]:
    """Measure 4: nodes, the least p among them, and how many are below FALSE_ALARM; by the kind of survey."""
    figures: dict[str, float | None] = {}
    total = off = 0
    for name, survey in _surveys():
        values = [*_node_values(survey, *_lived(survey))]
        if not values:
            raise RuntimeError(f"no node of the survey {name} has counts: the server was too slow to take the reports")
        figures |= {f"4_{name}_nodes": len(values), f"4_{name}_least_p": min(values)}
        total, off = total + len(values), off + sum(p < FALSE_ALARM for p in values)
    return figures | {"4_nodes": total, "4_nodes_off": off}


def _surveys() -> Iterator[tuple[str, Survey]]:
    for name, epsilon, questions in (("single", 2, 1), ("several", 4, 3), ("histories", 8, 1), ("number", 4, 1)):
        calendar, constraint = Calendar(START, "1d", PERIODS), AtMost(2)
        number = name == "number"
        wish = Wish(
            len(LEVELS) if number else 3,
            calendar,
            constraint,
            epsilon=Decimal(epsilon),
            devices=ENTRIES,
            closed=True,
            expected=steady_changes(calendar, constraint),
            minimum=1,
            questions=questions,
        )
        survey = wish.survey(optimal_plan(wish).plan, () if number else ("tea", "coffee", "milk"))
        if number:
            asked = Question.of_number(
                "minutes", "How many minutes?", LEVELS, constraint, "min", expected=survey.only.expected
            )
            survey = replace(survey, questions=(asked,))
        yield name, survey


def _lived(survey: Survey) -> tuple[Floats, Tallies]:
    """What the entries hold at the end of each period, shape (questions, entries, periods), and what a server counted.

    They hold numbers, or states from 1 on, of which each changes once at most.
    """
    generator = np.random.default_rng(4)
    shape = (2, len(survey.questions), ENTRIES, 1)
    held = generator.uniform(0, 120, shape) if survey.questions[0].is_number else generator.integers(1, 4, shape)
    moved = np.arange(PERIODS) >= generator.integers(1, PERIODS + 2, shape[1:])
    lives = np.where(moved, held[1], held[0]).astype(np.float64)
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_survey(folder / "survey.json", survey)
        with deployed(folder, folder / "survey.json") as deployment, httpx.HTTPTransport() as transport:
            clock = Clock(START + 1)
            deployment.move_clock(clock())
            with device(folder / "device.db", deployment, transport, clock) as client:
                _live(client, deployment, lives, clock)
            deployment.seal()
        store = Store.open(folder / "server.db")
        with store.view() as view:
            counted = view.tallies(deployment.survey.id)
        store.close()
    return lives, counted


def _live(client: Client, deployment: Deployment, lives: Floats, clock: Clock) -> None:
    """Joins with the first answers, records what changes as it changes, and flushes as each period closes."""
    survey = deployment.survey
    names = [question.name for question in survey.questions]
    first = [{name: _said(survey, lives[at, entry, 0]) for at, name in enumerate(names)} for entry in range(ENTRIES)]
    answers = first if len(names) > 1 else [each[names[0]] for each in first]
    handle = client.join(survey.id, entries=ENTRIES, answers=answers)
    for period in range(1, PERIODS + 1):
        clock.time = survey.calendar.time(period - 1) + 100
        for at, entry in np.argwhere(np.diff(lives, axis=2)[:, :, period - 2] != 0) if period > 1 else ():
            asked = handle.question(names[at]) if len(names) > 1 else handle
            asked.record(_said(survey, lives[at, entry, period - 1]), entry=int(entry))
        clock.time = survey.calendar.time(period) + survey.skew + survey.spread + 1
        deployment.move_clock(clock())
        client.flush()


def _said(survey: Survey, held: float) -> str | float:
    return held if survey.questions[0].is_number else survey.questions[0].answers[int(held) - 1]


def _node_values(survey: Survey, lives: Floats, counted: Tallies) -> Iterator[float]:
    """The p of each node: how likely reports are so far off, or further, if the sampler is right."""
    for at, question in enumerate(survey.questions):
        states, each = _distinct_lives(question, lives[at])
        view, numbers = survey.about(at), survey.plan.numbers_about(at)
        drawn = [_drawn(view, row, np.random.default_rng([5, number])) for number, row in enumerate(states)]
        for node in drawn[0].nodes:
            chances = np.array([tally.nodes[node].slots for tally in drawn]) / MANY
            of_entry = chances[each].mean(1)  # over the offsets, of which an entry draws one
            mean, covariance = of_entry.sum(0), np.diag(of_entry.sum(0)) - of_entry.T @ of_entry
            varies = np.diag(covariance) >= ENOUGH
            real = counted.nodes.get((numbers[node[0]], node[1]))
            if not varies.any() or real is None:
                continue
            if real.slots.sum() != real.reports:
                raise ValueError("a report fills one slot in the plans that are compared here")
            off = (real.slots - mean)[varies]
            inverse = np.linalg.pinv(covariance[np.ix_(varies, varies)], hermitian=True)
            rank = np.linalg.matrix_rank(covariance[np.ix_(varies, varies)], hermitian=True)
            yield float(chi2.sf(off @ inverse @ off, rank))


def _distinct_lives(question: Question, lives: Floats) -> tuple[States, NDArray[np.intp]]:
    """The different lives, as states at the times 0..T; and which each entry has, by its offset, (entries, offsets)."""
    if question.is_number:
        levels = [[[question.rounded(x, offset).answer for x in row] for offset in range(OFFSETS)] for row in lives]
        states = np.array(levels) + 1
    else:
        states = lives.astype(np.intp)[:, None]
    states = np.pad(states, ((0, 0), (0, 0), (1, 0))).astype(np.uint16)
    distinct, which = np.unique(states.reshape(-1, PERIODS + 1), axis=0, return_inverse=True)
    return distinct, which.reshape(states.shape[:2])


def _drawn(view: Survey, row: States, generator: np.random.Generator) -> Tallies:
    """What so many entries of one life send."""
    return sample_tallies(Population(view.answers, row[None], row[None], np.array([MANY])), view, generator)
