"""Entries that nobody is: what an attacker who invents devices can do to a survey's figures."""

import numpy as np
from changeling_protocol import Randomizer, Survey
from changeling_statistics import NodeTally, PlanNode, Tallies, counterpart_of
from numpy.typing import NDArray

from .sampler import full_attendance, reporting

MOST_TRIED = 4096
"""Of a larger alphabet so many symbols are drawn, of which an attacker takes the best."""


def invented_tallies(
    survey: Survey, liars: int, pushed: int, generator: np.random.Generator, *, group: int | None = None
) -> Tallies:
    """Draws the tallies of invented entries, which enrol before the first closing and report on all that they can.

    liars: how many. pushed: the state 1..z whose answer their symbols raise most; 0 for symbols at random.
    group: the group in the plan of all of them; if not given, each draws its own, as devices do.
    Raises ValueError for a state that is none of the survey's.

    >>> from decimal import Decimal
    >>> from changeling_protocol import AtMost, Calendar
    >>> from changeling_simulations import paper_survey
    >>> survey = paper_survey(("tea", "milk"), Calendar(0, "1d", 4), AtMost(2), epsilon=Decimal(20))
    >>> lies = invented_tallies(survey, 5, 1, np.random.default_rng(1))
    >>> {tally.reports for tally in lies.nodes.values()}
    {5}
    """
    if not 0 <= pushed <= len(survey.answers):
        raise ValueError(f"there is no answer {pushed} among {len(survey.answers)}")
    plan = survey.plan
    shares = np.array([each.share for each in plan.groups]) / plan.total_share
    chosen = shares if group is None else np.eye(len(shares))[group]
    members = generator.multinomial([liars], chosen)
    nodes: dict[PlanNode, NodeTally] = {}
    for number in range(len(plan.groups)):
        for track_number, track in plan.numbered(number):
            best = _raising(track.randomizer, pushed, generator) if pushed else None
            for at, count in zip(track.node_numbers(), reporting(track, members[:, number], generator), strict=True):
                symbols = (
                    np.full(count[0], best, np.uint64)
                    if best is not None
                    else generator.integers(0, track.randomizer.symbols, count[0], np.uint64)
                )
                if len(symbols):
                    nodes[track_number, at] = counterpart_of(track.randomizer).tally(symbols)
    return Tallies(nodes, full_attendance(survey, members))


def _raising(randomizer: Randomizer, pushed: int, generator: np.random.Generator) -> np.uint64:
    """The symbol that raises an answer most: of all, or of so many that are drawn."""
    few = randomizer.symbols <= MOST_TRIED
    tried: NDArray[np.uint64] = (
        np.arange(randomizer.symbols, dtype=np.uint64)
        if few
        else generator.integers(0, randomizer.symbols, MOST_TRIED, np.uint64)
    )
    counterpart = counterpart_of(randomizer)
    raised = [
        counterpart.estimate(counterpart.tally(tried[at : at + 1])).values[pushed - 1] for at in range(len(tried))
    ]
    return np.uint64(tried[int(np.argmax(raised))])
