"""A new mechanism, in this file alone: it keeps the contract, and `changeling release` runs it once it is registered.

The toy releases the level at the end of every second period, and repeats it in between. Whoever adds a mechanism writes
what stands between the two lines, and registers its offer.
"""

import subprocess
import sys
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import changeling_central as central
import numpy as np
import pytest
from changeling_central import (
    Asked,
    BadState,
    BudgetExhausted,
    Guarantee,
    Level,
    LinearQuery,
    Made,
    NodeNoise,
    Noise,
    Offer,
    PeriodChange,
    ReleaseMechanism,
    calibrated,
    check_counts,
)
from changeling_central.testing import MechanismContract, registered
from changeling_protocol import AtMost, Calendar, Constraint
from changeling_statistics import read_rows

from tests.command_line import changeling as main

from .mechanisms import CALENDAR, HISTOGRAM, TWICE, Example, of_level, periods_of

# ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EverySecondState:
    """period: how many have been taken in. level: the true one, shape (w,). said: what was last released."""

    period: int
    level: np.ndarray
    said: np.ndarray


@dataclass(frozen=True, slots=True)
class EverySecondLevel(ReleaseMechanism[EverySecondState]):
    """Every second level anew. Guarantee: an entry moves each of `calendar.periods // 2` levels by one column's most.

    Neighbours: changelogs of which one lacks an entry of the other. Source: the Laplace mechanism, composed.
    """

    query: LinearQuery
    calendar: Calendar
    noise: NodeNoise
    epsilon: Fraction

    @property
    def guarantee(self) -> Guarantee:
        neighbours = "changelogs of which one lacks an entry of the other"
        return Guarantee(self.epsilon, Fraction(0), neighbours, "Dwork, McSherry, Nissim, Smith 2006")

    def start(self) -> EverySecondState:
        nothing = np.zeros(self.query.width, np.int64)
        return EverySecondState(0, nothing, nothing)

    def step(self, state: EverySecondState, value: PeriodChange, noise: Noise) -> tuple[EverySecondState, Level]:
        if state.period >= self.calendar.periods:
            raise BudgetExhausted(f"the guarantee covers {self.calendar.periods} periods")
        period, level = state.period + 1, state.level + value.net
        said = level + self.noise.draw(noise, self.query.width) if period % 2 == 0 else state.said
        variance = self.noise.variance if period > 1 else 0.0
        return EverySecondState(period, level, said), Level(said.astype(np.float64), variance)

    def check(self, state: EverySecondState) -> None:
        if not 0 <= state.period <= self.calendar.periods:
            raise BadState(f"the state is of {state.period} periods")
        for counts in (state.level, state.said):
            check_counts(counts, (self.query.width,))

    def variance(self, step: int) -> float | None:
        return None if step < 0 else self.noise.variance if step > 1 else 0.0

    def made_with(self) -> Made:
        return {"kind": "toy", "scale": self.noise.scale.hex()}

    def covers(self, query: LinearQuery, calendar: Calendar, constraint: Constraint) -> bool:
        ours = (self.query, self.calendar) == (query, calendar)
        return ours and isinstance(constraint, AtMost) and self.noise.epsilon(shifts(query, calendar)) <= self.epsilon


def shifts(query: LinearQuery, calendar: Calendar) -> dict[int, int]:
    """An entry has one answer at a time, so it moves every level by what its answer counts."""
    return {max(query.appearing): len(query.appearing) * (calendar.periods // 2)}


def made(asked: Asked) -> EverySecondLevel:
    return EverySecondLevel(
        asked.query, asked.calendar, calibrated(shifts(asked.query, asked.calendar), asked.epsilon), asked.epsilon
    )


TOY = Offer("toy", "Every second level anew, and none of the others.", made)

# ----------------------------------------------------------------------------------------------------------------------

ONE = Fraction(1)


class TestEverySecondLevel(MechanismContract):
    """The same suite as for those that come with the package."""

    examples: ClassVar = [
        Example(
            "toy",
            made(Asked(HISTOGRAM, CALENDAR, TWICE, ONE)),
            periods_of(HISTOGRAM),
            other=made(Asked(HISTOGRAM, CALENDAR, TWICE, 2 * ONE)),
            numbers=of_level,
        )
    ]


@pytest.fixture
def offered():
    """Registered while a test runs."""
    with registered(TOY):
        yield


LOG = [(str(n), 10 * n + 1, "ab"[n % 2]) for n in range(20)]
SAID = {"every": "50s", "epsilon": 100, "at_most": 2, "start": "1970-01-01", "until": "1970-01-01T00:03:20"}


@pytest.mark.usefixtures("offered")
def test_the_function_releases_with_it_and_goes_on(tmp_path):
    """In two calls; its rows, its guarantee, and nobody else's state."""
    log, output = read_rows(LOG), tmp_path / "out.csv"
    given = {**SAID, "mechanism": "toy", "output": output}
    first = central.release(log, "any answer", **given, through="1970-01-01T00:01:40")
    assert [row.estimate for row in first.rows()] == [0, pytest.approx(10, abs=1)]
    whole = central.release(log, "any answer", **given)
    assert (first.published, whole.published) == (2, 2)
    assert whole.rows()[:2] == first.rows()
    assert whole.guarantee.source == "Dwork, McSherry, Nissim, Smith 2006"
    with pytest.raises(BadState, match="another mechanism"):
        central.release(log, "any answer", **{**given, "mechanism": "dcr"})


@pytest.mark.usefixtures("offered")
def test_the_command_releases_with_it(tmp_path, capsys):
    """By its name behind --mechanism, with the options it has and no others."""
    log = tmp_path / "log.csv"
    log.write_text("entry,time,answer\n" + "".join(f"{','.join(map(str, row))}\n" for row in LOG))
    words = ["release", str(log), "--query", "any answer", "-o", str(tmp_path / "out.csv"), "--mechanism", "toy"]
    words += [word for name, value in SAID.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    assert main(words) == 0
    assert len(central.read_rows(tmp_path / "out.csv")) == 4
    assert main([*words, "--window", "100s"]) == 1
    assert "toy has none" in capsys.readouterr().err
    other = ["-o", str(tmp_path / "other.csv")]
    assert main([*words, *other, "--delta", "1e-6", "--law", "gaussian"]) == 1
    assert "pure epsilon" in capsys.readouterr().err


@pytest.mark.usefixtures("offered")
def test_a_name_is_offered_once():
    """A second offer of the same name is refused."""
    with pytest.raises(ValueError, match="already"):
        central.register(TOY)


def test_mechanisms_of_other_packages_are_found_by_their_entry_points():
    """Those of the papers are listed in the help, and made by their names, though nothing here imports them."""
    words = "import changeling_central as c; print(*[o.name for o in c.all_offers()]); c.offered('counter')"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [
        *("best", "ahead", "square-root", "fresh", "optimised", "swcr", "hdcr", "dcr"),
        *("counter", "infinite", "partitioning", "dynamic"),
    ]
