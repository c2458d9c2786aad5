"""A trusted curator's mechanisms: counts of a changing database, published continually under differential privacy.

    release(frame, "any answer", every="1h", epsilon=1, at_most=2, output="out.csv")     period after period, to a file
    drawn_ahead(query, calendar, constraint, Fraction(1)), square_root(…)                 the mechanisms behind it

Every mechanism is a `Mechanism`: it states its guarantee, and `state, release = step(state, value, noise)`. Noise comes
from `OpenDPNoise()`. What goes wrong is a `CentralError`, or a ValueError for a bad argument. A mechanism of another
package is offered to `changeling release` by `register`, and proves itself with `changeling_central.testing`.
"""

from .afterwards import COLOURS
from .ahead import Blocks, Shape, drawn_ahead
from .api import Frame, Released, ReleaseOptions, release, release_with
from .budget import (
    ENTRY,
    Composition,
    Loss,
    ReleaseCost,
    check_output,
    check_periods,
    pure_of,
    total_cost,
    total_of,
    whole,
)
from .errors import BadState, BudgetExhausted, CentralError, ConstraintBroken, TimeReversed, UnusableChangelog
from .files import PublishedRow, held, read_about, read_rows, replaced
from .guard import first_breach, frozen
from .ledger import Charge, ReleaseAccount, ledger_beside, read_ledger
from .levels import NodeChanges, NodeSums, ReleaseOfNodes, Windows, sliding_windows
from .linear_query import LinearQuery, clipped_sum, counting, histogram_query
from .mechanism import (
    NEIGHBOURS,
    Guarantee,
    Level,
    Made,
    Mechanism,
    NodeRelease,
    PeriodChange,
    ReleaseMechanism,
    State,
    check_counts,
    check_left,
    read_state,
    written_state,
)
from .noise import (
    ABOVE,
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
from .offers import Asked, MechanismOption, Offer, all_offers, compared, offered, register
from .queries import ColumnTest, Mask, Predicate, Value, answer_query, best_weight, parsed
from .square_root import square_root, square_root_coefficients, square_root_concentrated
from .statement import spent

__all__ = [
    "ABOVE",
    "COLOURS",
    "ENTRY",
    "NEIGHBOURS",
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
    "Law",
    "Level",
    "LinearQuery",
    "Loss",
    "Made",
    "Mask",
    "Mechanism",
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
    "ReleaseOfNodes",
    "ReleaseOptions",
    "Released",
    "Shape",
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
    "check_left",
    "check_output",
    "check_periods",
    "clipped_sum",
    "compared",
    "concentrated_budget",
    "counting",
    "drawn_ahead",
    "first_breach",
    "frozen",
    "gaussian_scale",
    "held",
    "histogram_query",
    "implied_delta",
    "interval",
    "ledger_beside",
    "offered",
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
