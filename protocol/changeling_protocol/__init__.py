"""What the devices and the server of a survey must agree on; decides nothing about storage or transport."""

from .calendar import Calendar, Node, cadence, cover
from .coins import Coins, SystemCoins
from .constraints import AtMost, AtMostWithin, Constraint, Hybrid, TimeBounded, most_span
from .cost import plan_cost
from .errors import BadSignature, CannotOpen, MalformedBytes, ProtocolError, UnderstatedEpsilon
from .expectation import ExpectedChanges
from .joint import Joint
from .plan import Group, ReleasePlan, Track
from .randomizers import (
    CustomResponse,
    KaryChange,
    KaryResponse,
    MutationSpace,
    Odds,
    Randomizer,
    SignedSubset,
    StateSpace,
    SubsetSelection,
    UnaryEncoding,
)
from .sealing import SealingKey, open_envelope, seal
from .strata import Breakdown
from .survey import Survey
from .upload import Closing, Report, Standing
from .version import VERSION

__version__ = "0.1.0"

__all__ = [
    "VERSION",
    "AtMost",
    "AtMostWithin",
    "BadSignature",
    "Breakdown",
    "Calendar",
    "CannotOpen",
    "Closing",
    "Coins",
    "Constraint",
    "CustomResponse",
    "ExpectedChanges",
    "Group",
    "Hybrid",
    "Joint",
    "KaryChange",
    "KaryResponse",
    "MalformedBytes",
    "MutationSpace",
    "Node",
    "Odds",
    "ProtocolError",
    "Randomizer",
    "ReleasePlan",
    "Report",
    "SealingKey",
    "SignedSubset",
    "Standing",
    "StateSpace",
    "SubsetSelection",
    "Survey",
    "SystemCoins",
    "TimeBounded",
    "Track",
    "UnaryEncoding",
    "UnderstatedEpsilon",
    "cadence",
    "cover",
    "most_span",
    "open_envelope",
    "plan_cost",
    "seal",
]
