"""From tallies to histograms: estimates, release plans, what plans cost, and changelogs read from files.

    read_survey(Path("survey.signed"))                           a survey, its cost computed again
    read_csv(Path("people.csv"))                                 a changelog: who answered what, and when
    compare_plans(wish)                                          the best release plan for a wish, beside others
    loss_statement(survey, delta=1e-6)                           what a survey can cost an entry, in three figures
    series(survey, tallies, until=24)                            histograms from tallies, with their covariances
    bands([each.estimate for each in histograms], level=0.95)    confidence regions for all of them at once

Surveys, calendars and constraints come from `changeling_protocol`. Knows no web, no database and no clock.
"""

from .accounting.curves import (
    SILENT,
    Corner,
    Point,
    PrivacyCurve,
    composed,
    curve_of,
    grid_interval,
    randomizer_curve,
    worst_curve,
)
from .accounting.shuffled import Figure, LossStatement, loss_statement
from .accounting.transcript import delta_at, epsilon_at
from .changelog.changelog import ANSWER, MICROSECONDS, Changelog, Columns, Mutations, States
from .changelog.reading import read_csv, read_frame, read_parquet, read_rows
from .changelog.rows import swallows_rows
from .diagnostics import diagnosed
from .errors import BadChangelog, EmptyNode, NotEstimable, StatisticsError
from .estimate import (
    Attendance,
    Counts,
    Estimate,
    Floats,
    GroupClosing,
    NodeTally,
    PlanNode,
    Tallies,
    conserves,
    without_sum,
)
from .estimation.entries import Moments
from .estimation.figures import Figures, false_entries, histogram_figures, span_figures, window_figures
from .estimation.gaps import Gap
from .estimation.histograms import Change, Histogram, Smoothed, change, histogram, series, smoothed_series, smoothing
from .estimation.network import Indices, Network
from .estimation.recursion import Closing, Frontier, advance
from .estimation.regions import NORMAL, Ellipsoid, bands, intervals, region
from .estimation.releases import UsedNode, histogram_change, planned_variances, releases, superpopulation_change
from .estimation.solution import Solution
from .planning.outages import PRICE, gap_after_loss, outage
from .planning.plans import (
    Comparison,
    Planned,
    compare_plans,
    hierarchical_plan,
    optimal_plan,
    plan_in_words,
    sliding_plan,
)
from .planning.prediction import POINT, Option, Prediction, predict
from .planning.wish import MOST_PLANNED_PERIODS, Objective, Wish, steady_changes
from .publishing import Cell, StratifiedTallies, batches_to_show, select
from .randomizers.counterpart import Counterpart, agreement_chance
from .randomizers.registry import counterpart_of
from .succession import check_successor, next_calendar, offsets, total_cost
from .words import (
    SECONDS,
    constraint_in_words,
    constraint_of,
    format_duration,
    format_instant,
    parse_count,
    parse_duration,
    parse_epsilon,
    parse_instant,
    read_survey,
    write_survey,
)

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
    "batches_to_show",
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
