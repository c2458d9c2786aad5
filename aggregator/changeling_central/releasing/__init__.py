"""A release as a curator runs it: from a changelog, period by period, to rows on disk and a picture."""

from .choice import MechanismChoice
from .front import release
from .method import Made, PeriodChange, ReleaseMechanism
from .offer import Asked, Offer, Option
from .offers import all_offers, register
from .output import Output, Row, read_about, read_rows
from .released import Released
from .run import Release, run

__all__ = [
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
    "all_offers",
    "read_about",
    "read_rows",
    "register",
    "release",
    "run",
]
