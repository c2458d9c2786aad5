"""Measure 3 of the central releases, its largest study: sigma-counting of 10,000 queries over 21 columns."""

from .central_sigma import KINDS, LARGEST, of_study


def measure() -> dict[str, float]:
    """The figures of `central_sigma`, of both kinds of rows."""
    return {name: figure for kind in KINDS for name, figure in of_study(kind, *LARGEST).items()}
