"""How accurate a survey's histograms will be: their standard errors, before anybody answers.

They are those of the estimator in estimation/, with the same weights, for an expected population: the noise of the
randomizers, and the sampling error of shares (docs/mathematics.md, "Shares"). It does not matter who made the plan.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from changeling_protocol import Survey, Track
from numpy.typing import NDArray

from ..estimate import Floats
from ..estimation.expected import expected_products, expected_variance
from ..estimation.network import Indices, Network
from ..estimation.releases import planned_variance, shares
from .resistances import Edges, potentials, resistances, sums

POINT = 0.01
"""One percentage point, as a fraction of the entries."""


class PopulationMoments(Protocol):
    """What a prediction needs to know of a population."""

    def report_variances(self, track: int) -> Floats:
        """The variance of one report on each node of a track, mean over the answers, in entries squared.

        track: its number in the plan. Returns shape (nodes,).
        """
        ...

    @property
    def products(self) -> Floats:
        """Γ: E x(τ)x(τ'), mean over the answers, at the times 0..T, shape (T+1, T+1).

        x(τ) is 1 if an entry has the answer at time τ, else 0. In a closed cohort it is taken about its mean.
        """
        ...


@dataclass(frozen=True)
class ExpectedPopulation:
    """The population that a survey's designer expects.

    survey: the survey, which states the expectation.
    """

    survey: Survey

    def report_variances(self, track: int) -> Floats:
        """The mean variance over entries that change as often as expected."""
        survey, reported = self.survey, self.survey.plan.tracks[track]
        return np.array(
            [expected_variance(reported.randomizer, node, survey.expected, survey.closed) for node in reported.nodes()]
        )

    @property
    def products(self) -> Floats:
        """Γ of answers that are uniform, and change at a steady rate."""
        survey, times = self.survey, np.arange(self.survey.calendar.periods + 1)
        return expected_products(len(survey.answers), survey.expected, survey.closed, times, times)


@dataclass(frozen=True)
class Prediction:
    """How accurate a survey's histograms will be, as fractions of the entries, at the ends of periods 1..T.

    devices: how many answer.
    response: the variance that the randomizers add, mean over the answers, shape (T,), in squared fractions.
    sampling: the variance that asking only some of the entries adds, likewise.
    Both are inf at the end of a period that no nodes connect with the start.
    """

    devices: int
    response: Floats
    sampling: Floats

    @cached_property
    def errors(self) -> Floats:
        """The standard error at the end of each period, root mean square over the answers, shape (T,)."""
        errors: Floats = np.sqrt(self.response + self.sampling)
        return errors

    @property
    def mean(self) -> float:
        """The standard error over all periods: their root mean square."""
        return float(np.sqrt(np.mean(self.errors**2)))

    @property
    def worst(self) -> float:
        """The largest standard error of all periods."""
        return float(self.errors.max())

    def at(self, period: int) -> float:
        """The standard error at the end of a period. Raises ValueError outside 1..T."""
        if not 1 <= period <= len(self.errors):
            raise ValueError(f"periods are numbered 1 to {len(self.errors)}, got {period}")
        return float(self.errors[period - 1])

    def objective(self, objective: str) -> float:
        """One standard error for all periods.

        objective: "mean" for their root mean square, or "worst" for the largest.
        """
        return self.worst if objective == "worst" else self.mean

    def devices_for(self, error: float = POINT, objective: str = "mean") -> float:
        """How many devices it takes for a standard error, which falls with the root of their number; inf if none do.

        error: the standard error to reach, as a fraction of the entries; 0.01 is one percentage point.
        objective: "mean" or "worst", as above. Raises ValueError for an error that is not above 0.
        """
        if not error > 0:
            raise ValueError(f"a standard error to reach is above 0, got {error}")
        return self.devices * (self.objective(objective) / error) ** 2


def predict(
    survey: Survey, devices: int, *, retrospective: bool = False, population: PopulationMoments | None = None
) -> Prediction:
    """How accurate a survey's histograms will be.

        Var = (1/n) {Σ_e K_e² c_e/π_e + Σ_g f_g⁻¹ E d_g² - E x²},  d_g = Σ_{e∈g} K_e δ_e over the nodes e reported

    devices: n, how many answer, at least 1.
    retrospective: whether histograms are estimated from everything; if not, each as its period closes.
    population: who answers; if not given, the population that the survey's designer expects.
    Raises ValueError for fewer than one device.
    """
    if devices < 1:
        raise ValueError(f"a survey needs at least one device, got {devices}")
    population = population or ExpectedPopulation(survey)
    periods, f = survey.calendar.periods, shares(survey)
    tracks, reached = _weighed(survey, retrospective)
    response, sampling = np.zeros(periods), np.zeros(periods)
    for track in tracks:
        response += (track.K**2 * (population.report_variances(track.number) / track.chance)[:, None]).sum(0)
    if len(f) > 1 or any(track.chance < 1 for track in tracks):
        sampling = _sampling(tracks, population.products, f)
    for variance in (response, sampling):
        variance[~reached] = np.inf
    return Prediction(devices, response / devices, sampling / devices)


def _sampling(tracks: list["_WeighedTrack"], Γ: Floats, f: Floats) -> Floats:
    """Σ_g f_g⁻¹ E d_g² - E x², shape (periods,)."""
    periods = len(Γ) - 1
    sampling = -np.diagonal(Γ)[1:]
    for group, share in enumerate(f.tolist()):
        together = np.zeros((periods + 1, periods))
        for track in (track for track in tracks if track.group == group):
            at_times = track.at_times(periods)
            together += at_times
            sampling = sampling + track.drawn(Γ, at_times) / share
        sampling = sampling + _quadratic(Γ, together) / share
    sampling = np.maximum(sampling, 0.0)  # where it is 0, rounding could leave it below
    return sampling


@dataclass(frozen=True, slots=True, eq=False)
class _WeighedTrack:
    """A track, and how much its nodes weigh in the histogram at every time.

    number, group: of the track in the plan.
    chance: with which an entry reports a node of it.
    start, end: the two times of each node's edge, shape (nodes,).
    K: the weights, shape (nodes, periods).
    """

    number: int
    group: int
    track: Track
    chance: float
    start: Indices
    end: Indices
    K: Floats

    def at_times(self, periods: int) -> Floats:
        """The weights of the times 0..T in Σ_e K_e δ_e, for the histogram at each time; (periods + 1, periods)."""
        at = np.zeros((periods + 1, periods))
        np.add.at(at, self.end, self.K)
        np.add.at(at, self.start, -self.K)
        return at

    def drawn(self, Γ: Floats, at_times: Floats) -> Floats:
        """How much larger E d² is because an entry reports only r random nodes of N, shape (periods,).

        κ Σ_e K_e² E δ_e² + (ρ - 1) E (Σ_e K_e δ_e)²,  with ρ and κ as in estimation/sampling_forms.py
        """
        r, N = self.track.reports, self.track.count
        if r == N:
            return np.zeros(at_times.shape[1])
        chance, joint = r / N, r * (r - 1) / (N * (N - 1))
        spread = Γ[self.end, self.end] + Γ[self.start, self.start] - 2 * Γ[self.start, self.end]
        scattered = (chance - joint) / chance**2 * (self.K**2 * spread[:, None]).sum(0)
        drawn: Floats = scattered + (joint / chance**2 - 1) * _quadratic(Γ, at_times)
        return drawn


def _weighed(survey: Survey, retrospective: bool) -> tuple[list[_WeighedTrack], NDArray[np.bool_]]:
    """Every track with the weights that estimation/ gives its nodes, if as many report as are expected to.

    And which periods' ends the nodes connect with the start, shape (periods,); K is 0 for the others.
    """
    f, periods, plan = shares(survey), survey.calendar.periods, survey.plan
    known = []
    for group in range(len(plan.groups)):
        for number, track in plan.numbered(group):
            chance = float(f[group]) * track.reports / track.count
            nodes = track.nodes()
            end = np.array([node.end for node in nodes])
            start = end - track.width if track.reports_changes else np.zeros_like(end)
            variance = np.array([planned_variance(survey, number, node, chance, 1 / chance) for node in nodes])
            known.append((number, group, track, chance, start, end, variance))
    named = np.concatenate([end * (periods + 1) + start for *_, start, end, _ in known])
    conductances = np.concatenate([1 / variance for *_, variance in known])
    distinct, edge = np.unique(named, return_inverse=True)
    end, start = np.divmod(distinct, periods + 1)
    P = potentials(Edges(periods, start, end, retrospective), sums(edge, conductances, len(distinct)))
    reached = np.isfinite(resistances(P))
    if reached.all():
        across = P[end] - P[start]
        if not retrospective:
            across[end[:, None] > np.arange(1, periods + 1)] = 0.0
    else:
        network = Network(periods, start, end, 1 / sums(edge, conductances, len(distinct)))
        across, reached = _piecewise(network, retrospective)
    tracks, row = [], 0
    for number, group, track, chance, starts, ends, variance in known:
        K = across[edge[row : row + track.count]] / variance[:, None]
        tracks.append(_WeighedTrack(number, group, track, chance, starts, ends, K))
        row += track.count
    return tracks, reached


def _piecewise(network: Network, retrospective: bool) -> tuple[Floats, NDArray[np.bool_]]:
    """The drops across edges, shape (E, periods), and which periods' ends are connected with the start.

    Period by period: it is slower than `potentials`, and right where the graph has several connected parts.
    """
    periods = network.periods
    across, reached = np.zeros((len(network.end), periods)), np.zeros(periods, np.bool_)
    for time in range(1, periods + 1):
        used = network if retrospective else network.closed_by(time)
        reached[time - 1] = used.connected(time, 0)
        if reached[time - 1]:
            across[: len(used.end), time - 1] = used.row(time) * used.variance
    return across, reached


def _quadratic(Γ: Floats, weights: Floats) -> Floats:
    """w'Γw for every column w, shape (columns,)."""
    form: Floats = (weights * (Γ @ weights)).sum(0)
    return form
