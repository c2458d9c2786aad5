"""Who is enrolled and who was heard: what the attendance of closings says of how many entries a report stands for.

Those who are silent are taken to be like those who are heard. Let heard_t be the entries heard at a closing t, a_t the
share of them that enrolled since the closing before, and p_t the mean of their states, 0 or 1 for each answer. What a
node (s, t] measures is the mean change of those heard at t; newcomers change from nothing. So

    p_t = (1 - a) p_s + mean change,      1 - a = Π (1 - a_τ) over the closings τ in (s, t]

In units m, with m_s / m_t = 1 - a, that is an edge of the release graph again: m_t p_t - m_s p_s = m_t · mean change. m
starts as the number heard at the first closing, and where nobody is ever silent it is the number of entries.
docs/mathematics.md, "Who is missing".
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..estimate import Floats
from ..tallies import Attendance, GroupClosing

RECENT = 5
"""Of how many closings the median says which share of the entries is heard."""


@dataclass(frozen=True, slots=True, eq=False)
class Enrolment:
    """How many entries are enrolled and heard, at the times 0..T; at times that are no closings nobody is heard.

    heard: shape (T+1,).
    stands_for: m, how many entries those who are heard stand for, up to one factor, shape (T+1,).
    new: how many have enrolled by each time, of those heard at their first closing, shape (T+1,).
    missed: how many have enrolled earlier than at the closing where they were first heard, by each time, shape (T+1,).
    by_group: how many have been heard of by each time, shape (groups, T+1).
    """

    heard: Floats
    stands_for: Floats
    new: Floats
    missed: Floats
    by_group: Floats

    @classmethod
    def of(cls, attendance: Mapping[GroupClosing, Attendance], groups: int, periods: int) -> "Enrolment":
        """What the attendance of so many groups over so many periods says."""
        counts = np.zeros((3, groups, periods + 1))
        for (group, period), there in attendance.items():
            counts[:, group, period] = there.heard, there.new, there.missed
        heard, new, missed = counts.sum(1)
        return cls(
            heard=heard,
            stands_for=_stands_for(heard, new),
            new=np.cumsum(new),
            missed=np.cumsum(missed),
            by_group=np.cumsum(counts[1] + counts[2], axis=1),
        )

    def enrolled(self, until: int) -> float:
        """How many entries were heard of by a time."""
        return float(self.new[until] + self.missed[until])

    def heard_last(self, until: int) -> float:
        """How many entries were heard at the last closing by a time at which anybody was; 0 if there is none."""
        there = np.flatnonzero(self.heard[: until + 1])
        return float(self.heard[there[-1]]) if len(there) else 0.0

    def scale(self, until: int) -> float:
        """What takes estimates in units m to entries: enrolled / m, as known at a time."""
        return self.enrolled(until) / float(self.stands_for[until])

    def unheard(self, until: int) -> float:
        """By how much m / heard exceeds m / enrolled: 0 if nobody is silent. The median of the latest closings."""
        there = np.flatnonzero(self.heard[: until + 1])[-RECENT:]
        if not len(there):
            return 0.0
        return max(0.0, float(np.median(self.stands_for[there] / self.heard[there])) - 1.0 / self.scale(until))

    @property
    def silence(self) -> Floats:
        """m / heard - m / enrolled at each time, shape (T+1,); 0 where everybody was heard, or nobody."""
        enrolled, m = self.new + self.missed, self.stands_for
        there = self.heard > 0
        silence = np.zeros(len(m))
        silence[there] = m[there] / self.heard[there] - m[there] / enrolled[there]
        return np.maximum(silence, 0.0)


def _stands_for(heard: Floats, new: Floats) -> Floats:
    """m. Where all who are heard are new, one more is taken to be there who is not: m stays finite."""
    there = np.flatnonzero(heard)
    if not len(there):
        return np.ones(len(heard))
    old = heard - new
    growth = np.ones(len(heard))
    growth[there] = np.where(old[there] > 0, heard[there] / np.maximum(old[there], 1), heard[there] + 1)
    growth[: there[0] + 1] = 1.0
    m: Floats = heard[there[0]] * np.cumprod(growth)
    return m
