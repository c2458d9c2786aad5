"""Matrices of a solution: covariances that randomizers add, and symmetric ones as rows of a triangle."""

import numpy as np

from ..estimate import Floats


def sandwich(row: Floats, covariances: Floats) -> Floats:
    """Σ_e K_e² C_e: the covariance of Σ_e K_e y_e that the randomizers add, shape (z, z).

    row: K, shape (E,). covariances: C_e of each y_e, shape (E, z, z).
    """
    summed: Floats = np.tensordot(row**2, covariances, axes=1)
    return summed


def padded(columns: Floats, rows: int) -> Floats:
    """The columns with rows of 0 below, so many in all."""
    return np.concatenate([columns, np.zeros((rows - len(columns), columns.shape[1]))])


def unpacked(packed: Floats, z: int) -> Floats:
    """A symmetric matrix, (z, z), from its upper triangle by rows."""
    upper = np.triu_indices(z)
    full = np.zeros((z, z))
    full[upper] = packed
    full.T[upper] = packed
    return full
