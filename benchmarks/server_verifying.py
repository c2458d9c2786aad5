"""Measure 13 of a server: strangers verify what a million devices were published as over 52 periods.

Then one byte of a tally is changed, and all that hangs on it has to be named.
"""

import time
from dataclasses import replace
from decimal import Decimal

import numpy as np
from changeling_protocol import MICRO, AtMost, Calendar, Edition, ExpectedChanges, Survey
from changeling_simulations import Field, Population, sample_field, synthetic_changelog
from changeling_statistics import (
    Solution,
    Wish,
    counterpart_of,
    edition_columns,
    edition_files,
    optimal_plan,
    releases,
    tallies_in,
    verify_files,
)

SEED = 13
DEVICES, PERIODS, WEEK = 10**6, 52, 604_800
ANSWERS = ("school", "training", "employment", "elsewhere")
TELLING = 1e-6
"""A node with less weight than that in an estimate moves none of its figures by as much as is told apart."""


def measure() -> dict[str, float | None]:
    """All that is verified is right; of a changed byte, how many periods hang on it and are not named."""
    survey, edition, files = _million()
    began = time.perf_counter()
    wrong = verify_files(survey, edition, files)
    seconds = time.perf_counter() - began
    tallies = [list(each) for each in edition.tracks]
    number, nodes = max(
        enumerate(np.frombuffer(each[0], "<i8") for each in edition.tracks), key=lambda each: len(each[1])
    )
    place = len(nodes) // 2
    slots = counterpart_of(survey.plan.tracks[number].randomizer).slots
    column = bytearray(tallies[number][2])
    column[8 * (slots * place + 1)] ^= 1  # not its first slot, which may tell nothing of the answers
    tallies[number][2] = bytes(column)
    found = verify_files(survey, replace(edition, tracks=tuple(map(tuple, tallies))), files)
    named = {(each.file, each.period) for each in found if each.place.startswith("values")}
    hanging = _hanging(survey, edition, number, int(nodes[place]))
    return {
        "13_verify_seconds": seconds,
        "13_figures_wrong_of_an_honest_edition": len(wrong),
        "13_figures_named_after_one_byte": len(found),
        "13_periods_that_hang_on_it": len(hanging),
        "13_periods_that_hang_on_it_and_are_not_named": len(hanging - named),
    }


def _million() -> tuple[Survey, Edition, dict[str, bytes]]:
    generator = np.random.default_rng(SEED)
    calendar, constraint = Calendar(1_700_000_000 // WEEK * WEEK, WEEK, PERIODS), AtMost(4)
    expected = ExpectedChanges(first=MICRO, later=MICRO // 40)
    wish = Wish(len(ANSWERS), calendar, constraint, Decimal(4), devices=DEVICES, minimum=100, expected=expected)
    survey = wish.survey(optimal_plan(wish).plan, ANSWERS, "What do you do?")
    changelog = synthetic_changelog(len(ANSWERS), DEVICES, 1.2, calendar, generator)
    population = replace(Population.from_changelog(changelog, calendar, constraint), answers=ANSWERS)
    tallies = sample_field(population, survey, Field(arrivals=0.004, offline=0.1, spell=3), generator).tallies
    files = edition_files(survey, tallies, revision=PERIODS, last=PERIODS, final=PERIODS - 2)
    columns = edition_columns(survey, tallies)
    hashes = {name: bytes(32) for name in files}
    made = calendar.time(PERIODS)
    edition = Edition(survey.id, PERIODS, made, PERIODS, PERIODS - 2, columns["tracks"], columns["groups"], hashes)
    return survey, edition, files


def _hanging(survey: Survey, edition: Edition, track: int, node: int) -> set[tuple[str, int | None]]:
    """The series of the edition and the periods in whose estimates a node has weight, by the weights themselves."""
    graph = releases(survey, tallies_in(survey, edition))
    edge = next(at for at, used in enumerate(graph.nodes) if (used.track, used.number) == (track, node))
    return {
        (file, period)
        for file, retrospective in (("series.json", False), ("retrospective.json", True))
        for period, row in Solution(graph, retrospective).histogram_rows(PERIODS)
        if abs(row[edge]) > TELLING
    }
