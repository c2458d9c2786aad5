"""Everything one entry can do on a small calendar, the truth of a release of it, and mechanisms of levels."""

from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from itertools import product

import numpy as np
from changeling_central import (
    Asked,
    Law,
    LinearQuery,
    OpenDPNoise,
    clipped_sum,
    counting,
    histogram_query,
    offered,
    read_ledger,
    release,
)
from changeling_central.testing import Forbidden, NoNoise, RecordedNoise
from changeling_commands import main
from changeling_protocol import AtMost, Calendar
from changeling_statistics import MICROSECONDS, Mutations

CALENDAR = Calendar(0, 2, 4)
"""Four periods of two seconds, so that a mutation can fall inside one."""


def histories(answers, constraint, seconds, fixed=False):
    """Every sequence of states at seconds 1..`seconds` that an entry can go through under the constraint."""
    for states in product(range(answers + 1), repeat=seconds):
        times = [t for t, (a, b) in enumerate(zip((0, *states), states, strict=False), 1) if a != b]
        held = {state for state in states if state}
        kept = all(constraint.admits(i, t - times[0]) for i, t in enumerate(times))
        if times and kept and not (fixed and len(held) > 1):
            yield states


def moves_of(states):
    """The mutations (second, old, new) of an entry that holds these states at seconds 1, 2, …"""
    return [(t, a, b) for t, (a, b) in enumerate(zip((0, *states), states, strict=False), 1) if a != b]


def mutations_of(moves):
    """The same as the mutations of a changelog's first entry."""
    times, old, new = np.array(moves).T
    nothing = np.zeros(len(moves), np.int64)
    return Mutations(nothing, times * MICROSECONDS, old.astype(np.uint16), new.astype(np.uint16), nothing)


def node_changes(query, mutations, bounds):
    """Σ f(new) - f(old) over each node (bounds[i], bounds[i+1]], Unix seconds: shape (nodes, w), in units."""
    return mutations.histogram_changes(len(query.table) - 1, bounds) @ query.cells


def stepped(mechanism, values, noise):
    """The state after a step with each of these values, and what the steps released."""
    state, releases = mechanism.start(), []
    for value in values:
        state, release = mechanism.step(state, value, noise)
        releases.append(release)
    return state, releases


def transcript(mechanism, query, calendar, moves, released):
    """What a mechanism would release, without its noise, of one entry that moves so beside an empty database; flat."""
    bounds = [calendar.start + i * calendar.period for i in range(calendar.periods + 1)]
    _, releases = stepped(mechanism, node_changes(query, mutations_of(moves), bounds), NoNoise())
    return np.array([value for release in releases for value in released(release)])


def transcripts(mechanism, query, calendar, every, released):
    """The transcript of each of these histories, as rows. Changes of a query add up over mutations, and what a linear
    mechanism releases adds up over changes: so each mutation's own is worked out once, as long as a few agree.
    """
    states, rows = np.array(every), 0
    before = np.pad(states, ((0, 0), (1, 0)))[:, :-1]
    for at, (olds, news) in enumerate(zip(before.T, states.T, strict=True), 1):
        for old, new in {*zip(olds.tolist(), news.tolist(), strict=True)}:
            if old != new:
                moved = transcript(mechanism, query, calendar, [(at, old, new)], released)
                rows = rows + np.outer((olds == old) & (news == new), moved)
    for number in range(0, len(every), max(1, len(every) // 5)):
        assert np.array_equal(rows[number], transcript(mechanism, query, calendar, moves_of(every[number]), released))
    return rows


class Listed(RecordedNoise):
    """Hands out the draws that it is given, in their order, whatever the scale, and remembers what was asked for."""

    def __init__(self, draws):
        super().__init__()
        self.draws, self.handed = np.asarray(draws, np.int64).ravel(), 0

    def laplace(self, scale, size):
        self.asked.append(("laplace", scale, size))
        self.handed += size
        assert self.handed <= len(self.draws)
        return self.draws[self.handed - size : self.handed]

    gaussian = laplace


QUERIES = {
    "count": counting(["a", "b"], ["a"], "a"),
    "histogram": histogram_query(["a", "b"], ["a", "b"]),
    "fixed": histogram_query(["a", "b"], ["a", "b"], fixed=True),
    "sum": clipped_sum({"a": -2.0, "b": 3.0}, ["a", "b"], -2, 3),
    "mean": LinearQuery(("v", "w"), ((0, 0), (2, 1), (-2, 1)), (2, 1), (4, 1), corners=((0, 0), (2, 1), (-2, 1))),
}


def promised(k):
    """So many mutations, or whatever constraint is given in place of a number."""
    return AtMost(k) if isinstance(k, int) else k


def made_for(name, query, periods, k, epsilon=1, delta=0, rho=None, law=None):
    """The mechanism that is offered by this name. query: one, or its name in QUERIES."""
    wished = QUERIES[query] if isinstance(query, str) else query, Calendar(0, 1, periods), promised(k)
    return offered(name).made(Asked(*wished, Fraction(epsilon), Fraction(delta), law and Law(law), rho=rho))


def quiet_levels(mechanism, width, noise):
    """The levels that the mechanism publishes over so many columns where nothing ever changes, shape (T, width)."""
    names, counted = tuple(map(str, range(width))), (1, *(0,) * (width - 1))
    made = replace(mechanism, query=LinearQuery(names, ((0,) * width, counted), (1,), (1,)))
    _, levels = stepped(made, [np.zeros(width, np.int64)] * made.calendar.periods, noise)
    return np.array([level.values for level in levels])


TEA = {
    "entry": [str(n % 20) for n in range(30)],
    "time": [f"2026-01-01T{n // 2:02d}:30:00Z" for n in range(30)],
    "answer": ["tea" if n < 20 else "" for n in range(30)],
    "user": [str(n % 20 // 2) for n in range(30)],
}
"""A changelog of one day: 20 entries, of 10 persons, of which half leave again."""
DCR = {"every": "4h", "at_most": 2, "start": "2026-01-01", "until": "2026-01-02", "mechanism": "dcr"}


def release_of(log, name="one.csv", epsilon=1, query="any answer", frame=None, **more):
    """A release of any answer, four hours after four hours, by the mechanism that is quickest to choose."""
    source = log if frame is None else frame
    return release(source, query, epsilon=epsilon, output=log.parent / name, **{**DCR, **more})


def command(log, *more, output="out.csv"):
    """The same on the command line, which returns its exit code. more: other words, at the end."""
    dated = ["--every", "4h", "--at-most", "2", "--start", "2026-01-01", "--until", "2026-01-02", "--mechanism", "dcr"]
    words = ["release", log, "--query", "any answer", *dated, "-o", log.parent / output, *more]
    return main([str(word) for word in words])


def ledger_of(log):
    """The ledger beside the changelog."""
    return read_ledger(log.with_name("log.csv.ledger"))


def forbid_draws(monkeypatch):
    """Any draw fails the test from now on."""
    for law in ("laplace", "gaussian"):
        monkeypatch.setattr(OpenDPNoise, law, Forbidden().laplace)


@lru_cache(maxsize=4096)
def exact_delta(law, scale, shifts, epsilon):
    """The least delta of one draw per shift: Σ p(loss) (1 - e^(epsilon - loss)) over losses above epsilon.

    Gaussian: the loss of draws x shifted by s is (Σs² - 2Σs·x) / 2 scale². Laplace: Σ (|x - s| - |x|) / scale. Draws
    are followed to 9 scales, or 40, beyond which is less than 10⁻¹⁷ of their mass.
    """
    laplace, total, zero = law is Law.LAPLACE, np.ones(1), 0
    reach = int((40 if laplace else 9) * scale) + max(shifts, default=0) + 1
    x = np.arange(-reach, reach + 1)
    weights = np.exp(-np.abs(x) / scale if laplace else -((x / scale) ** 2) / 2)
    for shift in shifts:
        lost = np.abs(x - shift) - np.abs(x) if laplace else -shift * x
        total = np.convolve(total, np.bincount(lost - lost.min(), weights / weights.sum()))
        zero -= lost.min()
    losses = np.arange(len(total)) - zero
    losses = losses / scale if laplace else (losses + sum(shift**2 for shift in shifts) / 2) / scale**2
    return float(total @ np.maximum(0, -np.expm1(epsilon - losses)))
