"""What a report must satisfy, seen from inside, whatever carries it here: pure rules on columns.

A node that is open when its report arrives takes it into its tally; no tally of a node that has not closed is
ever shown, and that is how reports of fast clocks are held until their node closes.
"""

import polars as pl
from changeling_protocol import Survey, Track
from changeling_protocol.refusal import Refusal

from .columns import ID

REFUSAL = "refusal"


def judged(reports: pl.DataFrame, survey: Survey, track: Track) -> pl.DataFrame:
    """The reports with a column `refusal`: the first reason that applies, or null.

    reports: node, symbol, and arrival in Unix milliseconds. A node is late after its close and grace, and of
    the future while it begins later than arrival and skew.
    """
    close = close_ms(survey, track)
    begin = close - 1000 * track.width * survey.calendar.period
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


def close_ms(survey: Survey, track: Track) -> pl.Expr:
    """When each report's node closes."""
    calendar = survey.calendar
    return 1000 * (calendar.start + (track.first + pl.col("node") * track.width) * calendar.period)


def first_of_each(reports: pl.DataFrame) -> pl.DataFrame:
    """The first report of each (node, upload), and of these the first of each (node, id), in the order given.

    An upload is one entry's, which answers a node once: many false reports take many uploads.
    """
    of_uploads = reports.unique(subset=["node", "piece"], keep="first", maintain_order=True)
    return of_uploads.unique(subset=["node", *ID], keep="first", maintain_order=True)


def not_seen(reports: pl.DataFrame, seen: pl.DataFrame) -> pl.DataFrame:
    """The reports, all of one node, whose id is not in `seen`."""
    return reports.join(seen, on=ID, how="anti", maintain_order="left")


def early_pieces(reports: pl.DataFrame, survey: Survey, track: Track) -> list[tuple[int, int]]:
    """Pieces with a report that came before its node closed; for each until when the last such node is open, in ms."""
    sealed = close_ms(survey, track) + 1000 * survey.grace
    early = reports.filter(pl.col("arrival") < close_ms(survey, track))
    return early.group_by("piece").agg(sealed.max().alias("until")).rows()
