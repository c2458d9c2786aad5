"""A trusted curator's mechanisms: counts of a changing database, published continually under differential privacy.

    release(frame, "any answer", every="1h", epsilon=1, at_most=2, output="out.csv")     period after period, to a file
    drawn_ahead(query, calendar, constraint, Fraction(1)), square_root(…)                 the mechanisms behind it

Every mechanism is a `Mechanism`: it states its guarantee, and `state, release = step(state, value, noise)`. Noise comes
from `OpenDPNoise()`. What goes wrong is a `CentralError`, or a ValueError for a bad argument.
"""

from .ahead import AheadTree, Shape, drawn_ahead
from .changes import (
    Advice,
    BestEstimates,
    Dcr,
    Hdcr,
    Level,
    LinearQuery,
    NodeRelease,
    Swcr,
    Windows,
    advise,
    answer_query,
    best_hierarchy,
    clipped_sum,
    counting,
    cover_sum,
    disjoint_release,
    hierarchy,
    histogram_query,
    retrospective,
    sliding_windows,
)
from .changes.dcr import NEIGHBOURS
from .changes.hdcr import layer_bounds
from .colours import COLOURS
from .composition import Composition, Loss, parallel, supremum
from .concentrated import ABOVE, concentrated_budget, gaussian_scale
from .errors import BadState, BudgetExhausted, CentralError, ConstraintBroken, TimeReversed, UnusableChangelog
from .frames import Frame
from .guard import first_breach, frozen
from .intervals import Interval, online_interval, sum_interval
from .matrix import SquareRoot, square_root, square_root_concentrated
from .mechanism import Guarantee, Mechanism, State
from .node_noise import Law, NodeNoise, calibrated, total
from .noise import Noise, OpenDPNoise
from .pooled_noise import PooledNoise
from .predicate import Comparison, Mask, Predicate, Value, comparisons, evaluated, parsed
from .releasing import (
    Asked,
    Made,
    Offer,
    Option,
    PeriodChange,
    Released,
    ReleaseMechanism,
    Row,
    all_offers,
    read_about,
    read_rows,
    register,
    release,
)
from .releasing.account import Account
from .releasing.header import spent
from .releasing.ledger import Charge
from .releasing.limits import check_output, check_periods
from .releasing.source import ledger_beside
from .releasing.spending import pure_of, total_of
from .releasing.unit import ENTRY
from .saved import held, replaced
from .states import check_counts, read_state, written_state
from .whole import whole

__all__ = [
    "ABOVE",
    "COLOURS",
    "ENTRY",
    "NEIGHBOURS",
    "Account",
    "Advice",
    "AheadTree",
    "Asked",
    "BadState",
    "BestEstimates",
    "BudgetExhausted",
    "CentralError",
    "Charge",
    "Comparison",
    "Composition",
    "ConstraintBroken",
    "Dcr",
    "Frame",
    "Guarantee",
    "Hdcr",
    "Interval",
    "Law",
    "Level",
    "LinearQuery",
    "Loss",
    "Made",
    "Mask",
    "Mechanism",
    "NodeNoise",
    "NodeRelease",
    "Noise",
    "Offer",
    "OpenDPNoise",
    "Option",
    "PeriodChange",
    "PooledNoise",
    "Predicate",
    "ReleaseMechanism",
    "Released",
    "Row",
    "Shape",
    "SquareRoot",
    "State",
    "Swcr",
    "TimeReversed",
    "UnusableChangelog",
    "Value",
    "Windows",
    "advise",
    "all_offers",
    "answer_query",
    "best_hierarchy",
    "calibrated",
    "check_counts",
    "check_output",
    "check_periods",
    "clipped_sum",
    "comparisons",
    "concentrated_budget",
    "counting",
    "cover_sum",
    "disjoint_release",
    "drawn_ahead",
    "evaluated",
    "first_breach",
    "frozen",
    "gaussian_scale",
    "held",
    "hierarchy",
    "histogram_query",
    "layer_bounds",
    "ledger_beside",
    "online_interval",
    "parallel",
    "parsed",
    "pure_of",
    "read_about",
    "read_rows",
    "read_state",
    "register",
    "release",
    "replaced",
    "retrospective",
    "sliding_windows",
    "spent",
    "square_root",
    "square_root_concentrated",
    "sum_interval",
    "supremum",
    "total",
    "total_of",
    "whole",
    "written_state",
]
