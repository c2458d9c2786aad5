"""What a closing must satisfy once its envelope is open: pure rules on columns.

A closing of a fast clock may arrive before its period has closed. It is tallied at once, and as no tally of an open
node is ever shown, it waits there until the period closes.
"""

import polars as pl
from changeling_protocol import Refusal, Standing, Survey, UnixMilliseconds

REFUSAL = "refusal"


def judged(closings: pl.DataFrame, survey: Survey, last: int) -> pl.DataFrame:
    """The closings with one more column, `refusal`: the first reason that applies, null for a good one.

    last: the last period that counts; what is later is of a survey that was ended early.
    closings: answered ones, with the columns of `UploadRows.closings`. One is late when it arrives after its period's
    close and grace, and of the future when its period begins later than arrival and skew.
    """
    close = close_ms(survey)
    begin = close - 1000 * survey.calendar.period
    arrival = pl.col("arrival")
    return closings.with_columns(
        pl.when(pl.col("standing") > len(Standing))
        .then(pl.lit(Refusal.MALFORMED.value))
        .when(pl.col("stratum") >= survey.strata)
        .then(pl.lit(Refusal.UNKNOWN_STRATUM.value))
        .when(pl.col("period") > last)
        .then(pl.lit(Refusal.CLOSED.value))
        .when(begin > arrival + 1000 * survey.skew)
        .then(pl.lit(Refusal.FUTURE.value))
        .when(arrival > close + 1000 * survey.grace)
        .then(pl.lit(Refusal.LATE.value))
        .otherwise(None)
        .alias(REFUSAL)
    )


def close_ms(survey: Survey) -> pl.Expr:
    """When each closing's period ends, in Unix milliseconds."""
    calendar = survey.calendar
    return 1000 * (calendar.start + pl.col("period") * calendar.period)


def early_uploads(closings: pl.DataFrame, survey: Survey) -> list[tuple[int, UnixMilliseconds]]:
    """Which uploads hold a closing that arrived before its period had closed, and when the last such one is sealed.

    Returns pairs of the upload's number and Unix milliseconds.
    """
    sealed = close_ms(survey) + 1000 * survey.grace
    early = closings.filter(pl.col("arrival") < close_ms(survey))
    return early.group_by("upload").agg(sealed.max().alias("until")).rows()
