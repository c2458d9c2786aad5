"""Enrolment: who is enrolled and who was heard, and so how many entries a report stands for.

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
from functools import cached_property

import numpy as np
from changeling_protocol import ReleasePlan, Survey

from ..estimate import Attendance, Floats, GroupClosing
from .network import Indices

RECENT = 5
"""The number of closings whose median says which share of the entries is heard."""


@dataclass(frozen=True, eq=False)
class Enrolment:
    """How many entries are enrolled and heard, at the times 0..T; at times that are no closings nobody is heard.

    heard: shape (T+1,).
    stands_for: m, how many entries those who are heard stand for, up to one factor, shape (T+1,).
    new: how many have enrolled by each time, of those heard at their first closing, shape (T+1,).
    missed: how many have enrolled earlier than at the closing where they were first heard, by each time, shape (T+1,).
    Those of whom no closing that counts ever said so are among them: as many as were heard at once beyond all others.
    by_group: how many have been heard of by each time, shape (groups, T+1).
    """

    heard: Floats
    stands_for: Floats
    new: Floats
    missed: Floats
    by_group: Floats

    @classmethod
    def of(cls, attendance: Mapping[GroupClosing, Attendance], survey: Survey) -> "Enrolment":
        """The enrolment that the attendance at a survey's closings tells.

        Closings at which fewer are heard than the survey's minimum count as lost: nothing of them is published. In a
        closed cohort nobody is new later on.
        """
        plan, periods = survey.plan, survey.calendar.periods
        counts = np.zeros((3, len(plan.groups), periods + 1))
        if attendance:
            group, period = np.array([*attendance], np.intp).T
            counts[:, group, period] = np.array([(each.heard, each.new, each.missed) for each in attendance.values()]).T
        heard, new, missed = counts.sum(1)
        counted = np.flatnonzero(heard >= max(1, survey.minimum)).astype(np.intp)
        newcomers = np.zeros(len(counted)) if survey.closed else _newcomers(new, missed, counted, _closings(plan))
        told = np.cumsum(counts[1] + counts[2], axis=1)
        by_group = np.maximum(told, np.maximum.accumulate(counts[0], axis=1))
        return cls(
            heard=heard,
            stands_for=_stands_for(heard, newcomers, counted),
            new=np.cumsum(new),
            missed=np.cumsum(missed) + (by_group - told).sum(0),
            by_group=by_group,
        )

    @cached_property
    def enrolled(self) -> Floats:
        """How many entries were heard of by each time, shape (T+1,)."""
        enrolled: Floats = self.new + self.missed
        return enrolled

    @cached_property
    def latest(self) -> Floats:
        """How many were heard at the last closing by each time at which anybody was, shape (T+1,); 0 before it."""
        return self._at_each_time(self.heard[self._there])

    @cached_property
    def scales(self) -> Floats:
        """The factor from units m to entries, as known at each time: enrolled / m; 0 where nobody is."""
        return np.divide(self.enrolled, self.stands_for, out=np.zeros_like(self.new), where=self.stands_for > 0)

    @cached_property
    def recent(self) -> Floats:
        """The excess of m / heard over m / enrolled, as known at each time: the median of the latest closings; (T+1,).

        0 if nobody is silent.
        """
        return self._at_each_time(self._least_and_recent[1])

    @cached_property
    def lasting(self) -> Floats:
        """The part of `recent` that is due to entries which fell silent for long, shape (T+1,).

        It is what exceeds the closing at which fewest were silent; the rest strikes others at each closing.
        """
        return self._at_each_time(self._lasting)

    @cached_property
    def silence(self) -> Floats:
        """m / heard - m / enrolled at each time, but for those who stay silent, as known then; shape (T+1,).

        0 where everybody was heard, or nobody.
        """
        silence, there = np.zeros(len(self.heard)), self._there
        m, heard = self.stands_for[there], self.heard[there]
        silence[there] = np.maximum(0.0, m / heard - m / self.enrolled[there] - self._lasting)
        return silence

    @property
    def _there(self) -> Indices:
        """The times at which anybody was heard."""
        return np.flatnonzero(self.heard)

    def _at_each_time(self, figures: Floats) -> Floats:
        """Figures of the times at which anybody was heard, each until the next of them; 0 before the first."""
        last = np.searchsorted(self._there, np.arange(len(self.heard)), side="right")
        return np.concatenate([[0.0], figures])[last]

    @property
    def _lasting(self) -> Floats:
        """`lasting` at each of the times at which anybody was heard."""
        least, recent = self._least_and_recent
        lasting: Floats = np.maximum(0.0, recent - least)
        return lasting

    @cached_property
    def _least_and_recent(self) -> tuple[Floats, Floats]:
        """The excess of m / heard over m / enrolled, at the times at which anybody was heard, as known then.

        At the closing at which fewest were silent, and the median of the latest closings.
        """
        m, heard, new, missed = (each[self._there] for each in (self.stands_for, self.heard, self.new, self.missed))
        least, recent = np.zeros(len(m)), np.zeros(len(m))
        for at in range(len(m)):
            known = slice(at + 1)
            shares = np.maximum(0.0, m[known] / heard[known] - m[known] / (new[known] + missed[at]))
            latest = np.sort(shares[-RECENT:])
            least[at], recent[at] = shares.min(), (latest[(len(latest) - 1) // 2] + latest[len(latest) // 2]) / 2
        return least, recent


def _stands_for(heard: Floats, newcomers: Floats, counted: Indices) -> Floats:
    """m, from the closings that count. Where all who are heard are new, one more is taken to be there: m stays finite.

    newcomers: how many of those heard enrolled since the last closing that counts, at each that does.
    """
    growth = np.ones(len(heard))
    if not len(counted):
        return growth
    old = heard[counted] - newcomers
    growth[counted] = np.where(old > 0, heard[counted] / np.maximum(old, 1), heard[counted] + 1)
    growth[: counted[0] + 1] = 1.0
    m: Floats = heard[counted[0]] * np.cumprod(growth)
    return m


def _newcomers(new: Floats, missed: Floats, counted: Indices, closings: Indices) -> Floats:
    """The number of those heard at each closing that counts who enrolled since the last one that does.

    closings: all of the plan, rising. After one that does not count, those who were missed enrolled meanwhile, and so
    did those who said so there; after one that does they were offline.
    """
    told, before = np.cumsum(new + missed), np.concatenate([[0], counted[:-1]]).astype(np.intp)
    adjacent = closings[np.maximum(np.searchsorted(closings, counted) - 1, 0)] <= before
    newcomers: Floats = np.where(adjacent, new[counted], told[counted] - told[before])
    return newcomers


def _closings(plan: ReleasePlan) -> Indices:
    """The periods at which a node of any track ends, rising; of tracks about any question, as all make closings."""
    tracks = {(each.first, each.width, each.count) for group in plan.groups for each in group.tracks + group.hidden}
    ends = [first + width * np.arange(1, count + 1, dtype=np.intp) for first, width, count in tracks]
    return np.unique(np.concatenate(ends))
