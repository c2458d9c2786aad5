"""The exact covariance of estimates of entries whose histories are known: what published ones are held against."""

from dataclasses import replace

import numpy as np
from changeling_protocol import Survey
from changeling_statistics import Floats, Indices, conserves, counterpart_of, without_sum
from changeling_statistics.estimation.entries import SamplingDesign, forms, known_base, scatter
from numpy.typing import NDArray


def true_sampling_covariance(
    design: SamplingDesign, row: Floats, states: NDArray[np.integer], answers: int, *, fixed: bool = True
) -> Floats:
    """The exact sampling and joint covariance of an estimate, shape (z, z), in entries squared.

    row: the weights of the edges in the estimate, shape (E,).
    states: of every entry at times 0..T, 0 being NULL, shape (entries, T+1). answers: z.
    fixed: whether it is the covariance given how many entries are in each group: exact if all nodes or one random node
    are reported, else to first order. If not, entries draw their groups independently, and it is of first order.
    docs/mathematics.md, "Shares"; Neyman 1923.
    """
    columns, design = states.shape[1], replace(design, entries=np.array([float(len(states)) if fixed else 1e15]))
    same, other = known_base(replace(design, entries=np.array([float(len(states))])), row[None], columns - 1)
    quadratic, lone = forms(design, row[None], columns - 1), scatter(design, row[None])
    x = (states[:, :, None] == np.arange(1, answers + 1)).astype(np.float64)
    d = np.einsum("kt,itz->kiz", quadratic.c[0], x) - quadratic.base[0][:, None, None]
    delta = x[:, design.end] - x[:, design.start]
    about_base = delta - lone.base[None, :, None]
    d[: quadratic.sampled] -= d[: quadratic.sampled].mean(1, keepdims=True)
    delta = delta - delta.mean(0)
    spread: Floats = (
        np.einsum("k,kiy,kiz->yz", quadratic.omega[0], d, d)
        + np.einsum("e,iey,iez->yz", lone.sampled[0], delta, delta)
        + np.einsum("e,iey,iez->yz", lone.tied[0], about_base, about_base)
    )
    return spread + other + (same - other) * np.eye(answers)


def true_response_covariance(
    survey: Survey, track: Indices, end: Indices, expansion: Floats, row: Floats, states: NDArray[np.integer]
) -> Floats:
    """What the randomizers add, Σ_e K_e² C_e, shape (z, z), from the exact covariance of each entry's reports.

    track, end: the number of each edge's track, and when it ends. expansion: how many entries a report stands for,
    (E,). row, states: as above.
    """
    z = len(survey.answers)
    total = np.zeros((z, z))
    for number, until, stands_for, K in zip(track.tolist(), end.tolist(), expansion, row, strict=True):
        reported = survey.plan.tracks[number]
        since, randomizer = until - reported.width, reported.randomizer
        for old, new in states[:, [since, until]].tolist():
            one = counterpart_of(randomizer).report_covariance(randomizer.space.index(old, new))
            if conserves(survey.closed, reported.reports_changes, since):
                one = without_sum(np.zeros(z), one)[1]
            total += K**2 * stands_for * one
    return total
