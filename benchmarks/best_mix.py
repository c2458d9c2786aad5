"""The best mix of channels for linear unbiased estimates, with a proof of how far it can be from the optimum.

A channel of likelihoods Pr(o | h) over n histories brings the information I = Σ_o q_o q_o' / mean(q_o), q_o being the
likelihoods of one output. An estimator e with E[e | h] = x_h has the least mean square x' I⁻¹ x, and where everybody
knows which channel was drawn the informations add up. So the least mean square is convex in the weights.
"""

from dataclasses import dataclass

import numpy as np
from changeling_statistics import Floats

SHRINK = 0.2
"""By how much the barrier falls once it is solved."""
MOST_STEPS = 500


@dataclass(frozen=True, slots=True)
class Mix:
    """A mix of channels.

    weights: of each channel, shape (N,).
    square: Σ_t x_t' I⁻¹ x_t / T of this mix, the mean square of the best estimator.
    bound: no mix has less. A number that was checked, whatever the search did.
    """

    weights: Floats
    square: float
    bound: float


def best_mix(informations: Floats, wanted: Floats, charges: Floats, gap: float) -> Mix:
    """The weights w >= 0 with charges·w = 1 that give the least mean square, by an interior-point method.

    informations: of each channel, shape (N, n, n).
    wanted: x, what is estimated of each history, shape (n, T).
    charges: shape (c, N), positive; every row of charges·w is to be 1, and is so at some multiple of (1, …, 1).
    gap: how far from the bound the result may be.
    f is the mean square, φ = -∂f/∂w. As f(w) is convex and f(cw) = f(w)/c, f >= f(w)²/M for all weights, M being the
    largest φ·w. And M <= Σ y for every y with charges'·y >= φ, such as the multipliers of the search, scaled up.
    """
    N, n, _ = informations.shape
    T, flat = wanted.shape[1], informations.reshape(N, n * n)
    weights = np.full(N, 1 / charges.sum(axis=1).max())
    barrier, bound = np.inf, 0.0
    for _ in range(MOST_STEPS):
        solved = np.linalg.solve((weights @ flat).reshape(n, n), wanted)
        square = float((wanted * solved).sum()) / T
        barrier = min(barrier, square / N)
        answers = informations @ solved  # I_g I⁻¹ x_t, shape (N, n, T)
        phi = (answers * solved).sum(axis=(1, 2)) / T
        # Newton's step, in parts of each weight: (barrier + B B') step = φw + barrier - (charges·w)'ν, with no change
        # of charges·w.
        root = np.linalg.inv(np.linalg.cholesky((weights @ flat).reshape(n, n)))
        bends = np.sqrt(2 / T) * weights[:, None] * (root @ answers).reshape(N, n * T)
        axes, lengths, _ = np.linalg.svd(bends, full_matrices=False)
        shares = 1 / (barrier + lengths**2) - 1 / barrier
        charged = (charges * weights).T
        rising = phi * weights + barrier
        both = np.column_stack((rising, charged))
        both = both / barrier + axes @ (shares[:, None] * (axes.T @ both))
        multipliers = np.linalg.solve(charged.T @ both[:, 1:], charged.T @ both[:, 0])
        step = both[:, 0] - both[:, 1:] @ multipliers
        bound = max(bound, _certified(square, phi, charges, multipliers))
        if square - bound <= gap:
            break
        if np.abs(step).max() < 1 / 2:
            barrier *= SHRINK
        weights = weights * (1 + step * min(1.0, 0.9 / max(1e-300, float(np.abs(step).max()))))
        weights /= (charges @ weights).max()
    return Mix(weights, square, bound)


def _certified(square: float, phi: Floats, charges: Floats, multipliers: Floats) -> float:
    """f²/M, for the multipliers scaled up until they cover every φ; 0 if they cannot."""
    covering = charges.T @ multipliers
    if covering.min() <= 0:
        return 0.0
    return square**2 / float(multipliers.sum() * (phi / covering).max())
