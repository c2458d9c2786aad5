"""From tallies to histograms: estimates, release plans, what plans cost, and changelogs read from files.

    read_survey(Path("survey.signed"))                           a survey, its cost computed again
    read_csv(Path("people.csv"))                                 a changelog: who answered what, and when
    compare_plans(wish)                                          the best release plan for a wish, beside others
    loss_statement(survey, delta=1e-6)                           what a survey can cost an entry, in three figures
    series(survey, tallies, until=24)                            histograms from tallies, with their covariances
    bands([each.estimate for each in histograms], level=0.95)    confidence regions for all of them at once

Surveys, calendars and constraints come from `changeling_protocol`. Knows no web, no database and no clock.
"""

from .accounting import Figure, LossStatement, delta_at, epsilon_at, loss_statement
from .accounting.curve import SILENT, Corner, Point, PrivacyCurve, curve_of, randomizer_curve, worst_curve
from .accounting.distributions import composed, grid_interval
from .changelog import MICROSECONDS, Changelog, Columns, Mutations, read_csv, read_frame, read_parquet, read_rows
from .changelog.form import ANSWER
from .changelog.mutations import States
from .changelog.quotes import swallows_rows
from .conservation import conserves, without_sum
from .constraint_words import constraint_in_words, constraint_of
from .counts import parse_count
from .diagnostics import diagnosed
from .durations import SECONDS, format_duration, parse_duration
from .epsilons import parse_epsilon
from .errors import BadChangelog, EmptyNode, NotEstimable, StatisticsError
from .estimate import Floats
from .estimation import (
    Change,
    Ellipsoid,
    Estimate,
    Gap,
    Histogram,
    Smoothed,
    UsedNode,
    bands,
    change,
    displayed,
    histogram,
    histogram_change,
    intervals,
    region,
    series,
    sliding,
    smoothed_series,
    superpopulation_change,
)
from .estimation.expected import Moments
from .estimation.figures import Figures, histogram_figures, span_figures, window_figures
from .estimation.influence import false_entries
from .estimation.network import Indices, Network
from .estimation.recursion import Closing, Frontier, advance
from .estimation.regions import NORMAL
from .estimation.releases import planned_variances, releases
from .estimation.smoother import smoothing
from .estimation.solution import Solution
from .instants import format_instant, parse_instant
from .planning import (
    Comparison,
    Option,
    Planned,
    Prediction,
    Wish,
    compare_plans,
    hierarchical_plan,
    optimal_plan,
    plan_in_words,
    predict,
    sliding_plan,
)
from .planning.floors import PRICE
from .planning.outages import gap_after_loss, outage
from .planning.prediction import POINT
from .planning.wish import MOST_PLANNED_PERIODS, Objective, steady_changes
from .randomizers import Counterpart, counterpart_of
from .randomizers.agreement import agreement_chance
from .snapshots import Cell, lots_to_show
from .strata import StratifiedTallies, select
from .succession import check_successor, next_calendar, offsets, total_cost
from .survey_files import read_survey, write_survey
from .tallies import Attendance, Counts, GroupClosing, NodeTally, PlanNode, Tallies

__all__ = [
    "ANSWER",
    "MICROSECONDS",
    "MOST_PLANNED_PERIODS",
    "NORMAL",
    "POINT",
    "PRICE",
    "SECONDS",
    "SILENT",
    "Attendance",
    "BadChangelog",
    "Cell",
    "Change",
    "Changelog",
    "Closing",
    "Columns",
    "Comparison",
    "Corner",
    "Counterpart",
    "Counts",
    "Ellipsoid",
    "EmptyNode",
    "Estimate",
    "Figure",
    "Figures",
    "Floats",
    "Frontier",
    "Gap",
    "GroupClosing",
    "Histogram",
    "Indices",
    "LossStatement",
    "Moments",
    "Mutations",
    "Network",
    "NodeTally",
    "NotEstimable",
    "Objective",
    "Option",
    "PlanNode",
    "Planned",
    "Point",
    "Prediction",
    "PrivacyCurve",
    "Smoothed",
    "Solution",
    "States",
    "StatisticsError",
    "StratifiedTallies",
    "Tallies",
    "UsedNode",
    "Wish",
    "advance",
    "agreement_chance",
    "bands",
    "change",
    "check_successor",
    "compare_plans",
    "composed",
    "conserves",
    "constraint_in_words",
    "constraint_of",
    "counterpart_of",
    "curve_of",
    "delta_at",
    "diagnosed",
    "displayed",
    "epsilon_at",
    "false_entries",
    "format_duration",
    "format_instant",
    "gap_after_loss",
    "grid_interval",
    "hierarchical_plan",
    "histogram",
    "histogram_change",
    "histogram_figures",
    "intervals",
    "loss_statement",
    "lots_to_show",
    "next_calendar",
    "offsets",
    "optimal_plan",
    "outage",
    "parse_count",
    "parse_duration",
    "parse_epsilon",
    "parse_instant",
    "plan_in_words",
    "planned_variances",
    "predict",
    "randomizer_curve",
    "read_csv",
    "read_frame",
    "read_parquet",
    "read_rows",
    "read_survey",
    "region",
    "releases",
    "select",
    "series",
    "sliding",
    "sliding_plan",
    "smoothed_series",
    "smoothing",
    "span_figures",
    "steady_changes",
    "superpopulation_change",
    "swallows_rows",
    "total_cost",
    "window_figures",
    "without_sum",
    "worst_curve",
    "write_survey",
]
