"""The sampling error of shares where everybody's history is known: what the estimated one is held against."""

import numpy as np
from changeling_statistics.estimate import Floats
from changeling_statistics.estimation.sampling_forms import Design, forms
from numpy.typing import NDArray


def true_sampling_covariance(design: Design, row: Floats, states: NDArray[np.integer], answers: int) -> Floats:
    """The exact sampling covariance of an estimate, shape (z, z), in entries squared.

    row: the weights of the edges in the estimate, shape (E,).
    states: of every entry at times 0..T, 0 being NULL, shape (entries, T+1). answers: z.
    For ratio estimators it is the covariance given how many entries are in each group: exact if all nodes or one random
    node are reported, else to first order. docs/mathematics.md, "Shares"; Neyman 1923.
    """
    n, columns = states.shape
    quadratic = forms(design, row, columns - 1)
    x = (states[:, :, None] == np.arange(1, answers + 1)).astype(np.float64)
    d = np.einsum("kt,itz->kiz", quadratic.c, x)
    delta = x[:, design.end] - x[:, design.start]
    target = d[-1].sum(0)
    if design.centred:
        d = d - d.mean(1, keepdims=True)
        delta = delta - delta.mean(0)
    spread: Floats = np.einsum("k,kiy,kiz->yz", quadratic.omega, d, d) + np.einsum(
        "e,iey,iez->yz", quadratic.scatter, delta, delta
    )
    if design.centred:
        spread = spread * n / (n - 1) + design.unseen * np.outer(target, target)
    return spread
