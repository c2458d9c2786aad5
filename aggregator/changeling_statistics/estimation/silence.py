"""Who was heard, and what can be said of a histogram whatever those hold who were not.

An estimate Σ_e K_e·(change on edge e) is, for any answers, the sum over the entries of Σ_e K_e δ_ie. Of an edge's
entries only those are known who were heard as its node closed. Each of the others adds something between the least and
the most that K_e δ_e can be: δ is 0 or 1 for a state or a first answer, and -1 to 1 for a change.
"""

from dataclasses import dataclass

import numpy as np

from ..estimate import Floats
from .regions import intervals
from .solution import Solution


@dataclass(frozen=True, slots=True, eq=False)
class Silence:
    """Who of the entries behind an estimate was heard.

    solution: what it is an estimate of. plus, minus: it is one of v_plus - v_minus.
    """

    solution: Solution
    plus: int
    minus: int

    @property
    def known_until(self) -> int:
        """The last period whose closing the estimate may hang on."""
        if not self.solution.retrospective:
            return self.plus
        return int(np.flatnonzero(self.solution.releases.enrolment.heard).max(initial=0))

    @property
    def enrolled(self) -> int:
        """How many entries were heard of by then; a histogram is about so many."""
        return round(self.solution.releases.enrolment.enrolled(self.solution.known_until(self.plus)))

    @property
    def heard(self) -> int:
        """How many of them were heard as the last period closed that anybody reported, up to that of the estimate."""
        return round(self.solution.releases.enrolment.heard_last(self.plus))

    @property
    def response_rate(self) -> float:
        """The share of those enrolled that was heard; 1 if nobody is enrolled."""
        return self.heard / self.enrolled if self.enrolled else 1.0

    def bounds(self, level: float = 0.95) -> Floats:
        """Lower and upper ends for each answer that hold whatever the silent are like, shape (z, 2), in entries.

        nan for an answer whose variance, itself an estimate, came out below zero.
        level: with which probability they cover what those who are heard hold, between 0 and 1.
        """
        solution, enrolment = self.solution, self.solution.releases.enrolment
        until, end = solution.known_until(self.plus), solution.releases.network.end
        if self.plus == 0:
            return np.zeros((len(solution.releases.survey.answers), 2))
        row = solution.row(self.plus, self.minus) / enrolment.scale(until)
        silent = np.maximum(enrolment.new[end] + enrolment.missed[until] - enrolment.heard[end], 0.0) * row
        least = np.minimum(silent, 0.0)
        may_fall = solution.releases.network.start > 0
        below = least.sum() - np.maximum(silent, 0.0)[may_fall].sum()
        above = np.maximum(silent, 0.0).sum() - least[may_fall].sum()
        told = solution.weighed(row * enrolment.heard[end] / enrolment.stands_for[end], until, of_heard=True)
        bounds = intervals(told, level) + np.array([below, above])
        lowest = 0.0 if self.minus == 0 else -float(self.enrolled)
        clipped: Floats = np.clip(bounds, lowest, float(self.enrolled))
        return clipped
