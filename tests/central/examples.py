"""Everything one entry can do on a small calendar, and the truth of a release of it."""

from functools import lru_cache
from itertools import product

import numpy as np
from changeling_central import Law, OpenDPNoise, read_ledger, release
from changeling_central.testing import Forbidden, NoNoise, RecordedNoise
from changeling_commands import main as run
from changeling_protocol import Calendar
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


def mutations_of(states):
    """The mutations of one entry that holds these states at seconds 1, 2, …"""
    moves = [(t, a, b) for t, (a, b) in enumerate(zip((0, *states), states, strict=False), 1) if a != b]
    times, old, new = (np.array(column) for column in zip(*moves, strict=True))
    nothing = np.zeros(len(moves), np.int64)
    return Mutations(nothing, times * MICROSECONDS, old.astype(np.uint16), new.astype(np.uint16), nothing)


def node_changes(query, mutations, bounds):
    """Σ f(new) - f(old) over each node (bounds[i], bounds[i+1]], Unix seconds: shape (nodes, w), in units."""
    return mutations.histogram_changes(len(query.table) - 1, bounds) @ query.cells


def transcript(mechanism, query, calendar, states, released):
    """What a mechanism would release, without its noise, of one entry beside an empty database; flattened."""
    return _transcript(mechanism, query, calendar, mutations_of(states), released)


def transcripts(mechanism, query, calendar, every, released):
    """The transcript of each of these histories, as rows. Changes of a query add up over mutations, and what a linear
    mechanism releases adds up over changes: so each mutation's own is worked out once, as long as a few agree.
    """
    states = np.array(every)
    before, seconds = np.pad(states, ((0, 0), (1, 0)))[:, :-1], states.shape[1]
    of_mutation = {
        (at, a, b): _transcript(mechanism, query, calendar, _mutation(at + 1, a, b), released)
        for at in range(seconds)
        for a, b in {*zip(before[:, at].tolist(), states[:, at].tolist(), strict=True)}
        if a != b
    }
    rows = np.zeros((len(every), len(next(iter(of_mutation.values())))), int)
    for (at, a, b), found in of_mutation.items():
        rows[(before[:, at] == a) & (states[:, at] == b)] += found
    for number in range(0, len(every), max(1, len(every) // 5)):
        assert np.array_equal(rows[number], transcript(mechanism, query, calendar, every[number], released))
    return rows


def _mutation(at, old, new):
    return Mutations(
        np.zeros(1, np.int64),
        np.array([at * MICROSECONDS]),
        np.array([old], np.uint16),
        np.array([new], np.uint16),
        np.zeros(1, np.int64),
    )


def _transcript(mechanism, query, calendar, mutations, released):
    bounds = [calendar.start + i * calendar.period for i in range(calendar.periods + 1)]
    state, found = mechanism.start(), []
    for change in node_changes(query, mutations, bounds):
        state, release = mechanism.step(state, change, NoNoise())
        found.extend(released(release))
    return np.array(found)


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


TEA = {
    "entry": [str(n % 20) for n in range(30)],
    "time": [f"2026-01-01T{n // 2:02d}:30:00Z" for n in range(30)],
    "answer": ["tea" if n < 20 else "" for n in range(30)],
    "user": [str(n % 20 // 2) for n in range(30)],
}
"""A changelog of one day: 20 entries, of 10 persons, of which half leave again."""
FOUR_HOURS = {"every": "4h", "at_most": 2, "start": "2026-01-01", "until": "2026-01-02"}
DCR = {**FOUR_HOURS, "mechanism": "dcr"}


def release_of(log, name="one.csv", epsilon=1, query="any answer", frame=None, **more):
    """A release of any answer, four hours after four hours, by the mechanism that is quickest to choose."""
    source = log if frame is None else frame
    return release(source, query, epsilon=epsilon, output=log.parent / name, **{**DCR, **more})


def command(log, *more, output="out.csv"):
    """The same on the command line, which returns its exit code. more: other words, at the end."""
    dated = ["--every", "4h", "--at-most", "2", "--start", "2026-01-01", "--until", "2026-01-02", "--mechanism", "dcr"]
    words = ["release", log, "--query", "any answer", *dated, "-o", log.parent / output, *more]
    return run([str(word) for word in words])


def ledger_of(log):
    """The ledger beside the changelog."""
    return read_ledger(log.with_name("log.csv.ledger"))


def forbid_draws(monkeypatch):
    """Any draw fails the test from now on."""
    for law in ("laplace", "gaussian"):
        monkeypatch.setattr(OpenDPNoise, law, Forbidden().laplace)


REACH = 9
"""Gaussian draws are followed to so many scales."""


@lru_cache(maxsize=4096)
def exact_delta(law, scale, shifts, epsilon):
    """The least delta of one draw per shift: Σ p(loss) (1 - e^(epsilon - loss)) over losses above epsilon.

    Gaussian: the loss of draws x shifted by s is (Σs² - 2Σs·x) / 2 scale². Laplace: Σ (|x - s| - |x|) / scale.
    """
    total, zero, step = np.ones(1), 0, 1 / scale if law is Law.LAPLACE else 1 / scale**2
    for shift in shifts:
        spread, at = _laplace(scale, shift) if law is Law.LAPLACE else _gaussian(scale, shift)
        total, zero = np.convolve(total, spread), zero + at
    # Positions count from the loss Σs² / 2 scale², and 0.
    middle = sum(s * s for s in shifts) * step / 2 if law is Law.GAUSSIAN else 0.0
    loss = middle + (np.arange(len(total)) - zero) * step
    return float(total @ np.maximum(0, -np.expm1(epsilon - loss)))


def _gaussian(scale, shift):
    reach = int(REACH * scale) + 1
    x = np.arange(-reach, reach + 1)
    law = np.exp(-(x**2) / (2 * scale**2))
    spread = np.zeros(2 * reach * shift + 1)
    spread[::shift] = law / law.sum()
    return spread, reach * shift


def _laplace(scale, shift):
    """The loss is shift - 2x where 0 <= x <= shift, and stays at both ends beyond; in units of 1 / scale."""
    p = np.exp(-1 / scale)
    at = (1 - p) / (1 + p) * p ** np.arange(shift + 1)
    end = 1 / (1 + p)
    spread = np.zeros(2 * shift + 1)
    spread[::2] = at[::-1]
    spread[-1], spread[0] = end, end * p**shift
    return spread, shift
