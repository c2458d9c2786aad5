"""From tallies to histograms: estimates, release plans, what plans cost, and changelogs read from files.

    read_survey(Path("survey.signed"))                           a survey, its cost computed again
    read_csv(Path("people.csv"))                                 a changelog: who answered what, and when
    compare_plans(wish)                                          the best release plan for a wish, beside others
    loss_statement(survey, delta=1e-6)                           what a survey can cost an entry, in three figures
    series(survey, tallies, until=24)                            histograms from tallies, with their covariances
    bands([each.estimate for each in histograms], level=0.95)    confidence regions for all of them at once

Surveys, calendars and constraints come from `changeling_protocol`. Knows no web, no database and no clock.
"""

from changeling_protocol import parse_duration, parse_instant

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
from .accounting.shuffled import Figure, LossStatement, loss_statement, shuffled_loss
from .accounting.transcript import delta_at, epsilon_at
from .changelog.changelog import ANSWER, MICROSECONDS, Changelog, Columns, Mutations, States, swallows_rows
from .changelog.reading import read_csv, read_frame, read_parquet, read_rows
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
    VarianceCurve,
    conserves,
    without_sum,
)
from .estimation.differences import Difference, difference, share_difference, share_differences
from .estimation.entries import Moments
from .estimation.figures import Figures, false_entries, histogram_figures, span_figures, window_figures
from .estimation.gaps import Gap
from .estimation.histograms import Change, Histogram, Smoothed, change, histogram, series, smoothed_series
from .estimation.network import Indices, Network
from .estimation.numbers import NumberFigure, NumberFigures, number_series
from .estimation.recursion import ClosingEdges, Frontier, advance
from .estimation.regions import NORMAL, Ellipsoid, bands, half_width, intervals, region
from .estimation.releases import (
    Releases,
    UsedNode,
    histogram_change,
    planned_variances,
    releases,
    superpopulation_change,
)
from .estimation.smoothing import Smoothing
from .estimation.solution import Solution
from .planning.distance import Distance, distance_from_best
from .planning.freezing import (
    Freezing,
    Habits,
    Pilot,
    Rung,
    SteadyChanges,
    admitted,
    ladder,
    periods_told,
    pilot_of,
    rung,
)
from .planning.outages import PRICE, gap_after_loss, outage
from .planning.plans import Comparison, Planned, compare_plans, hierarchical_plan, optimal_plan, plan_in_words
from .planning.prediction import POINT, Option, Prediction, predict
from .planning.questionnaire import (
    ESTIMANDS,
    EstimandError,
    PlannedQuestions,
    QuestionClass,
    Questionnaire,
    WeightedQuestion,
    estimand_error,
    levels_tried,
    plan_questionnaire,
    questions_in_words,
)
from .planning.wish import MOST_PLANNED_PERIODS, Objective, Wish, steady_changes
from .publishing import Cell, ClosingCell, NodeCell, StratifiedTallies, batches_to_show, select
from .randomizers.counted import CountedCounterpart
from .randomizers.counterpart import (
    Blanket,
    Counterpart,
    DecodedNodes,
    Likelihoods,
    PairKind,
    agreement_chance,
    merged,
    one_pair,
)
from .randomizers.kary import KaryCounterpart
from .randomizers.registry import (
    ChangeOffers,
    RandomizerOffer,
    class_variances,
    counterpart_of,
    offer_of,
    register_counterpart,
)
from .shown import ShownAs, csv_shown, head_shown, many_shown, rows_shown, series_shown
from .succession import change_across, check_successor, joined_series, next_calendar, offsets, total_cost
from .verification import WrongFigure, edition_columns, edition_files, tallies_in, verify_files
from .words import (
    constraint_in_words,
    constraint_of,
    format_duration,
    format_instant,
    parse_count,
    parse_epsilon,
    read_survey,
    write_survey,
)

__all__ = [
    "ANSWER",
    "ESTIMANDS",
    "MICROSECONDS",
    "MOST_PLANNED_PERIODS",
    "NORMAL",
    "POINT",
    "PRICE",
    "SILENT",
    "Attendance",
    "BadChangelog",
    "Blanket",
    "Cell",
    "Change",
    "ChangeOffers",
    "Changelog",
    "ClosingCell",
    "ClosingEdges",
    "Columns",
    "Comparison",
    "Corner",
    "CountedCounterpart",
    "Counterpart",
    "Counts",
    "DecodedNodes",
    "Difference",
    "Distance",
    "Ellipsoid",
    "EmptyNode",
    "EstimandError",
    "Estimate",
    "Figure",
    "Figures",
    "Floats",
    "Freezing",
    "Frontier",
    "Gap",
    "GroupClosing",
    "Habits",
    "Histogram",
    "Indices",
    "KaryCounterpart",
    "Likelihoods",
    "LossStatement",
    "Moments",
    "Mutations",
    "Network",
    "NodeCell",
    "NodeTally",
    "NotEstimable",
    "NumberFigure",
    "NumberFigures",
    "Objective",
    "Option",
    "PairKind",
    "Pilot",
    "PlanNode",
    "Planned",
    "PlannedQuestions",
    "Point",
    "Prediction",
    "PrivacyCurve",
    "QuestionClass",
    "Questionnaire",
    "RandomizerOffer",
    "Releases",
    "Rung",
    "ShownAs",
    "Smoothed",
    "Smoothing",
    "Solution",
    "States",
    "StatisticsError",
    "SteadyChanges",
    "StratifiedTallies",
    "Tallies",
    "UsedNode",
    "VarianceCurve",
    "WeightedQuestion",
    "Wish",
    "WrongFigure",
    "admitted",
    "advance",
    "agreement_chance",
    "bands",
    "batches_to_show",
    "change",
    "change_across",
    "check_successor",
    "class_variances",
    "compare_plans",
    "composed",
    "conserves",
    "constraint_in_words",
    "constraint_of",
    "counterpart_of",
    "csv_shown",
    "curve_of",
    "delta_at",
    "diagnosed",
    "difference",
    "distance_from_best",
    "edition_columns",
    "edition_files",
    "epsilon_at",
    "estimand_error",
    "false_entries",
    "format_duration",
    "format_instant",
    "gap_after_loss",
    "grid_interval",
    "half_width",
    "head_shown",
    "hierarchical_plan",
    "histogram",
    "histogram_change",
    "histogram_figures",
    "intervals",
    "joined_series",
    "ladder",
    "levels_tried",
    "loss_statement",
    "many_shown",
    "merged",
    "next_calendar",
    "number_series",
    "offer_of",
    "offsets",
    "one_pair",
    "optimal_plan",
    "outage",
    "parse_count",
    "parse_duration",
    "parse_epsilon",
    "parse_instant",
    "periods_told",
    "pilot_of",
    "plan_in_words",
    "plan_questionnaire",
    "planned_variances",
    "predict",
    "questions_in_words",
    "randomizer_curve",
    "read_csv",
    "read_frame",
    "read_parquet",
    "read_rows",
    "read_survey",
    "region",
    "register_counterpart",
    "releases",
    "rows_shown",
    "rung",
    "select",
    "series",
    "series_shown",
    "share_difference",
    "share_differences",
    "shuffled_loss",
    "smoothed_series",
    "span_figures",
    "steady_changes",
    "superpopulation_change",
    "swallows_rows",
    "tallies_in",
    "total_cost",
    "verify_files",
    "window_figures",
    "without_sum",
    "worst_curve",
    "write_survey",
]
