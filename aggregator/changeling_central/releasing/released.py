"""What `release` gives back: what is published so far, and what its reader should know."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from changeling_protocol import Calendar

from ..mechanism import Guarantee
from .header import About
from .ledger import Ledger
from .output import Row, read_rows

if TYPE_CHECKING:
    from polars import DataFrame


@dataclass(frozen=True, slots=True)
class Released:
    """What is published so far.

    output: the file. query: in words. calendar: all periods of the release, `last` of which have ended. published: how
    many periods this call added. guarantee: what the whole release costs the unit of privacy. calendar_from_data: an
    end of the calendar was read from the data, and is not protected. notes: what its reader should know, a sentence
    each. asides: what the data say, for the curator alone: they are not private. about: what stands at the head of the
    output. ledger: of all releases of the changelog, None where there is none.
    """

    output: Path
    query: str
    calendar: Calendar
    last: int
    published: int
    guarantee: Guarantee
    calendar_from_data: bool
    notes: tuple[str, ...]
    asides: tuple[str, ...]
    about: About
    ledger: Ledger | None

    def rows(self) -> list[Row]:
        """All that was published by then, a row for each period and column."""
        every = read_rows(self.output) if self.output.exists() else []
        return [row for row in every if row.period <= self.last]

    def frame(self) -> "DataFrame":
        """The same as a polars frame, with times as datetimes in UTC."""
        import polars as pl

        schema = {"period": pl.Int64, "time": pl.String, "name": pl.String}
        numbers = {"estimate": pl.Float64, "standard_error": pl.Float64}
        frame = pl.DataFrame(self.rows(), schema={**schema, **numbers}, orient="row")
        return frame.with_columns(pl.col("time").str.to_datetime(time_zone="UTC"))
