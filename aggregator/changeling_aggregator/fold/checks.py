"""What a report must satisfy once its envelope is open: pure rules on columns.

A report of a fast clock may arrive before its node has closed. It is tallied at once, and as no tally of an open node
is ever shown, it waits there until the node closes.
"""

import polars as pl
from changeling_protocol import Survey, Track
from changeling_protocol.quantities import UnixMilliseconds
from changeling_protocol.refusal import Refusal

from .columns import ID

REFUSAL = "refusal"


def judged(reports: pl.DataFrame, survey: Survey, track: Track) -> pl.DataFrame:
    """The reports with one more column, `refusal`: the first reason that applies, null for a good report.

    reports: with columns node, symbol, and arrival in Unix milliseconds. A report is late when it arrives after its
    node's close and grace, and of the future when its node begins later than arrival and skew.
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
    """When each report's node closes, in Unix milliseconds."""
    calendar = survey.calendar
    return 1000 * (calendar.start + (track.first + pl.col("node") * track.width) * calendar.period)


def first_of_each(reports: pl.DataFrame) -> pl.DataFrame:
    """The first report of each node in each upload, and of these the first of each node and id, in the order given.

    An upload is one entry's, and an entry answers a node once: whoever sends many false reports needs many uploads.
    """
    of_uploads = reports.unique(subset=["node", "piece"], keep="first", maintain_order=True)
    return of_uploads.unique(subset=["node", *ID], keep="first", maintain_order=True)


def not_seen(reports: pl.DataFrame, seen: pl.DataFrame) -> pl.DataFrame:
    """The reports, all of one node, whose id is not in `seen`."""
    return reports.join(seen, on=ID, how="anti", maintain_order="left")


def early_pieces(reports: pl.DataFrame, survey: Survey, track: Track) -> list[tuple[int, UnixMilliseconds]]:
    """Which pieces hold a report that arrived before its node had closed, and when the last such node is sealed.

    Returns pairs of the piece's number and Unix milliseconds.
    """
    sealed = close_ms(survey, track) + 1000 * survey.grace
    early = reports.filter(pl.col("arrival") < close_ms(survey, track))
    return early.group_by("piece").agg(sealed.max().alias("until")).rows()
