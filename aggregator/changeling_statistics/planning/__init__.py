"""The best release plan for a population and a budget, beside others, and how accurate any plan will be. Pure."""

from .comparison import Comparison, compare_plans, plan_in_words
from .optimal import Planned, optimal_plan
from .option import Option
from .paper import hierarchical_plan
from .prediction import Prediction, predict
from .sliding import sliding_plan
from .wish import Wish

__all__ = [
    "Comparison",
    "Option",
    "Planned",
    "Prediction",
    "Wish",
    "compare_plans",
    "hierarchical_plan",
    "optimal_plan",
    "plan_in_words",
    "predict",
    "sliding_plan",
]
