"""What a report must satisfy, seen from inside, whatever carries it here: pure rules on columns.

A node that is open when its report arrives takes it into its tally; no tally of a node that has not closed is
ever shown, and that is how reports of fast clocks are held until their node closes.
"""

import polars as pl
from changeling_protocol import Survey, Track

from ..refusal import Refusal
from .columns import ID

REFUSAL = "refusal"


def judged(reports: pl.DataFrame, survey: Survey, track: Track) -> pl.DataFrame:
    """The reports with a column `refusal`: the first reason that applies, or null.

    reports: node, symbol, and arrival in Unix milliseconds. A node is late after its close and grace, and of
    the future while it begins later than arrival and skew.
    """
    calendar = survey.calendar
    end = track.first + pl.col("node") * track.width
    close = 1000 * (calendar.start + end * calendar.period)
    begin = close - 1000 * track.width * calendar.period
    arrival = pl.col("arrival")
    return reports.with_columns(
        pl.when(pl.col("node") > track.count)
        .then(pl.lit(Refusal.UNKNOWN_NODE.value))
        .when(begin > arrival + 1000 * survey.skew)
        .then(pl.lit(Refusal.FUTURE.value))
        .when(arrival > close + 1000 * survey.grace)
        .then(pl.lit(Refusal.LATE.value))
        .when(pl.col("symbol") >= track.randomizer.symbols)
        .then(pl.lit(Refusal.SYMBOL_OUT_OF_RANGE.value))
        .otherwise(None)
        .alias(REFUSAL)
    )


def first_of_each(reports: pl.DataFrame) -> pl.DataFrame:
    """The first report of each (node, id), in the order given."""
    return reports.unique(subset=["node", *ID], keep="first", maintain_order=True)


def not_seen(reports: pl.DataFrame, seen: pl.DataFrame) -> pl.DataFrame:
    """The reports whose (node, id) is not in `seen`."""
    return reports.join(seen, on=["node", *ID], how="anti")
