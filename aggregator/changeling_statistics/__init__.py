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
from .changelog import Changelog, Mutations, read_csv, read_frame, read_parquet, read_rows
from .errors import BadChangelog, EmptyNode, NotEstimable, StatisticsError
from .estimation import (
    Change,
    Ellipsoid,
    Estimate,
    Gap,
    Histogram,
    Smoothed,
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
from .planning import (
    Comparison,
    Option,
    Planned,
    Prediction,
    Wish,
    compare_plans,
    hierarchical_plan,
    optimal_plan,
    predict,
    sliding_plan,
)
from .randomizers import counterpart_of
from .survey_files import read_survey, write_survey
from .tallies import NodeTally, Tallies

__all__ = [
    "BadChangelog",
    "Change",
    "Changelog",
    "Comparison",
    "Ellipsoid",
    "EmptyNode",
    "Estimate",
    "Figure",
    "Gap",
    "Histogram",
    "LossStatement",
    "Mutations",
    "NodeTally",
    "NotEstimable",
    "Option",
    "Planned",
    "Prediction",
    "Smoothed",
    "StatisticsError",
    "Tallies",
    "Wish",
    "bands",
    "change",
    "compare_plans",
    "counterpart_of",
    "delta_at",
    "displayed",
    "epsilon_at",
    "hierarchical_plan",
    "histogram",
    "histogram_change",
    "intervals",
    "loss_statement",
    "optimal_plan",
    "predict",
    "read_csv",
    "read_frame",
    "read_parquet",
    "read_rows",
    "read_survey",
    "region",
    "series",
    "sliding",
    "sliding_plan",
    "smoothed_series",
    "superpopulation_change",
    "write_survey",
]
