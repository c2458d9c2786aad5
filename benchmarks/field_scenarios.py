"""What the field measures are about: a population, plans for it, and what goes wrong."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from changeling_protocol import (
    AtMost,
    Calendar,
    Group,
    Joint,
    KaryResponse,
    MutationSpace,
    Node,
    Odds,
    ReleasePlan,
    SignedSubset,
    StateSpace,
    Survey,
    Track,
)
from changeling_simulations import Field, Population

ANSWERS, PERIODS, MOST_CHANGES = 3, 12, 2
HISTORIES, EACH, SEED = 60, 50, 11
"""60 histories of 50 entries each."""
TIMES = (4, 12)
CALENDAR = Calendar(0, 86_400, PERIODS)
EPSILON_8 = Odds(3000, 1)
ANY = Odds(9, 1)
"""Of a randomizer in a joint group, whose odds follow from the group's."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One survey of one population that is simulated again and again.

    name: of the figures. survey, population: what is asked, and of whom. field: what goes wrong.
    times: the periods whose histograms are looked at, as they close.
    """

    name: str
    survey: Survey
    population: Population
    field: Field
    times: tuple[int, ...] = TIMES


def scenarios() -> list[Scenario]:
    """Each thing that may go wrong, with either plan; minima with nodes about as large; a closed cohort's panel."""
    wrong = {
        "silent": Field(offline=0.05),
        "leaving": Field(uninstalls=0.01),
        "arriving": Field(arrivals=0.03),
        "outage": Field(outage=Node(4, 7)),
        "late_start": Field(outage=Node(0, 3)),
    }
    open_to_all = {"optimal": optimal_kind(), "hierarchy": hierarchy()}
    listed = [
        Scenario(f"{name}_{kind}", survey_of(plan), made_up(EACH), field)
        for name, field in wrong.items()
        for kind, plan in open_to_all.items()
    ]
    for expected in (80, 100, 125):
        for kind, (plan, nodes) in {"optimal": (panel(3), PERIODS // 3), "hierarchy": (sampled(), 4)}.items():
            survey = survey_of(plan, minimum=100)
            population = made_up(expected * nodes // HISTORIES, expected * nodes % HISTORIES)
            listed.append(Scenario(f"minimum_{expected}_{kind}", survey, population, Field()))
    closed = survey_of(panel(3, closed=True), closed=True)
    listed.append(Scenario("closed_panel", closed, made_up(EACH), Field(), times=(1, 4, 9, 12)))
    return listed


def optimal_kind() -> ReleasePlan:
    """Changes over every period from half of the entries, a state after four, eight or twelve from the others."""
    changes = SignedSubset(MutationSpace(ANSWERS), ANY, 1, Fraction(1, 12))
    states = KaryResponse(StateSpace(ANSWERS), ANY)
    slots = 1 + MOST_CHANGES
    return ReleasePlan(
        (
            Group.jointly((Track(1, changes, 0, PERIODS),), Joint(EPSILON_8, 1, (1,), (slots,))),
            Group.jointly((Track(4, states, 0, PERIODS, reported=1),), Joint(EPSILON_8, 1, (1,), (1,))),
        )
    )


def hierarchy() -> ReleasePlan:
    """The paper's: everybody reports changes over 1, 2, 4 and 8 periods."""
    response = KaryResponse(MutationSpace(ANSWERS), Odds(200, 1))
    return ReleasePlan((Group(tuple(Track(2**layer, response, 0, PERIODS) for layer in range(4))),))


def sampled() -> ReleasePlan:
    """A hierarchy of which an entry reports one of four layers."""
    response = KaryResponse(MutationSpace(ANSWERS), Odds(20, 1))
    return ReleasePlan(tuple(Group((Track(2**layer, response, 0, PERIODS),)) for layer in range(4)))


def panel(reported: int, *, closed: bool = False) -> ReleasePlan:
    """States at so many random periods of an entry, jointly."""
    states = KaryResponse(StateSpace(ANSWERS, null=not closed), ANY)
    joint = Joint(EPSILON_8, reported, (1,), (reported,))
    return ReleasePlan((Group.jointly((Track(1, states, 0, PERIODS, reported=reported),), joint),))


def survey_of(plan: ReleasePlan, *, closed: bool = False, minimum: int = 1) -> Survey:
    """A survey of the three answers with this plan."""
    return Survey.at_cost(
        question="Do intervals hold in the field?",
        answers=tuple(f"answer {a}" for a in range(1, ANSWERS + 1)),
        calendar=CALENDAR,
        constraint=AtMost(1 + MOST_CHANGES),
        plan=plan,
        closed=closed,
        skew=60,
        spread=600,
        grace=86_400,
        minimum=minimum,
    )


def made_up(each: int, more: int = 0) -> Population:
    """Histories with an answer from the first period on and up to two changes after it.

    each: how many entries have each. more: how many of the histories have one entry more.
    """
    generator = np.random.default_rng(SEED)
    states = np.zeros((HISTORIES, PERIODS + 1), np.uint16)
    for row in states:
        row[1:] = generator.choice(ANSWERS, p=[0.5, 0.3, 0.2]) + 1
        for period in sorted(generator.integers(2, PERIODS + 1, generator.choice(MOST_CHANGES + 1, p=[0.6, 0.3, 0.1]))):
            row[period:] = (row[period] + generator.integers(0, ANSWERS - 1)) % ANSWERS + 1
    weights = np.full(HISTORIES, each, np.int64) + (np.arange(HISTORIES) < more)
    return Population(tuple(f"answer {a}" for a in range(1, ANSWERS + 1)), states, states, weights)
