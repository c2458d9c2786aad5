"""A trusted curator's mechanisms: counts of a changing database, published continually under differential privacy.

    release(frame, "any answer", every="1h", epsilon=1, at_most=2, output="out.csv")     period after period, to a file
    drawn_ahead(query, calendar, constraint, Fraction(1)), square_root(…)                 the mechanisms behind it

Every mechanism is a `Mechanism`: it states its guarantee, and `state, release = step(state, value, noise)`. Noise comes
from `OpenDPNoise()`. What goes wrong is a `CentralError`, or a ValueError for a bad argument. A mechanism of another
package is offered to `changeling release` by `register`, and proves itself with `changeling_central.testing`.
"""

from .afterwards import COLOURS
from .ahead import AheadTree, drawn_ahead
from .api import Frame, Released, ReleaseOptions, release, release_with
from .budget import ENTRY, ReleaseCost, check_output, check_periods, pure_of, total_cost, total_of, whole
from .composition import Composition, Loss
from .errors import BadState, BudgetExhausted, CentralError, ConstraintBroken, TimeReversed, UnusableChangelog
from .files import PublishedRow, held, read_about, read_rows, replaced
from .guard import first_breach, frozen
from .ledger import Charge, ReleaseAccount, ledger_beside, read_ledger
from .linear_query import LinearQuery, clipped_sum, counting, histogram_query
from .mechanism import (
    NEIGHBOURS,
    Guarantee,
    Level,
    LevelMechanism,
    Made,
    Mechanism,
    NodeRelease,
    State,
    check_counts,
    checked_change,
    read_state,
    written_state,
)
from .noise import (
    ABOVE,
    JointShifts,
    Law,
    NodeNoise,
    Noise,
    OpenDPNoise,
    PooledNoise,
    added,
    calibrated,
    concentrated_budget,
    gaussian_scale,
    implied_delta,
    interval,
    total,
)
from .offers import (
    Asked,
    MechanismChoice,
    MechanismOption,
    Offer,
    PeriodChange,
    ReleaseMechanism,
    all_offers,
    register,
)
from .queries import ColumnTest, Mask, Predicate, Value, answer_query, best_weight, comparisons, evaluated, parsed
from .release_mechanisms import compared
from .sensitivity import square_root_coefficients
from .shape import Blocks, Shape
from .square_root import SquareRoot, square_root, square_root_concentrated
from .statement import spent
from .windows import NodeChanges, NodeSums, Windows, sliding_windows

__all__ = [
    "ABOVE",
    "COLOURS",
    "ENTRY",
    "NEIGHBOURS",
    "AheadTree",
    "Asked",
    "BadState",
    "Blocks",
    "BudgetExhausted",
    "CentralError",
    "Charge",
    "ColumnTest",
    "Composition",
    "ConstraintBroken",
    "Frame",
    "Guarantee",
    "JointShifts",
    "Law",
    "Level",
    "LevelMechanism",
    "LinearQuery",
    "Loss",
    "Made",
    "Mask",
    "Mechanism",
    "MechanismChoice",
    "MechanismOption",
    "NodeChanges",
    "NodeNoise",
    "NodeRelease",
    "NodeSums",
    "Noise",
    "Offer",
    "OpenDPNoise",
    "PeriodChange",
    "PooledNoise",
    "Predicate",
    "PublishedRow",
    "ReleaseAccount",
    "ReleaseCost",
    "ReleaseMechanism",
    "ReleaseOptions",
    "Released",
    "Shape",
    "SquareRoot",
    "State",
    "TimeReversed",
    "UnusableChangelog",
    "Value",
    "Windows",
    "added",
    "all_offers",
    "answer_query",
    "best_weight",
    "calibrated",
    "check_counts",
    "check_output",
    "check_periods",
    "checked_change",
    "clipped_sum",
    "compared",
    "comparisons",
    "concentrated_budget",
    "counting",
    "drawn_ahead",
    "evaluated",
    "first_breach",
    "frozen",
    "gaussian_scale",
    "held",
    "histogram_query",
    "implied_delta",
    "interval",
    "ledger_beside",
    "parsed",
    "pure_of",
    "read_about",
    "read_ledger",
    "read_rows",
    "read_state",
    "register",
    "release",
    "release_with",
    "replaced",
    "sliding_windows",
    "spent",
    "square_root",
    "square_root_coefficients",
    "square_root_concentrated",
    "total",
    "total_cost",
    "total_of",
    "whole",
    "written_state",
]
