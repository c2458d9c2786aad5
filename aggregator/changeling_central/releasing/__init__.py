"""A release as a curator runs it: from a changelog, period by period, to rows on disk and a picture."""

from .choice import MechanismChoice
from .front import Released, release
from .method import Made, PeriodChange, ReleaseMechanism
from .offer import Asked, Offer, Option
from .offers import OFFERS, register
from .output import Output, Row, read_rows
from .run import Release, run

__all__ = [
    "OFFERS",
    "Asked",
    "Made",
    "MechanismChoice",
    "Offer",
    "Option",
    "Output",
    "PeriodChange",
    "Release",
    "ReleaseMechanism",
    "Released",
    "Row",
    "read_rows",
    "register",
    "release",
    "run",
]
