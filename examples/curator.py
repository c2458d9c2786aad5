"""A trusted curator publishes a count of its own database, hour after hour, and gives no entry away.

    $ python examples/curator.py

The database says which flights from New York are in the air. What is published hardly depends on any one flight:
whether it was there at all, or when it left and landed.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
from changeling_central import CentralError, release
from changeling_statistics import read_frame

FLIGHTS = Path(__file__).parents[1] / "data/flights_in_air_2013_01.csv.gz"
BEGIN, END = datetime(2013, 1, 1, tzinfo=UTC), datetime(2013, 1, 8, tzinfo=UTC)


def main() -> None:
    """Publishes a week of hours, and sets them beside the truth, which only the curator can do."""
    frame = pl.read_csv(
        FLIGHTS, schema_overrides={"time": pl.String}
    )  # entry, time, answer; an empty answer is landing
    try:
        released = release(
            frame,
            "any answer",  # how many flights are in the air, whatever their airline
            every="1h",
            epsilon=1,  # the most that the whole release may tell of a flight
            at_most=2,  # it leaves once and lands once
            start=BEGIN,
            until=END,
            output="flights.csv",  # run again, it goes on where it stopped and draws nothing twice
        )
    except CentralError as error:
        raise SystemExit(f"nothing more is published: {error}") from None
    print(f"{released.published} hours published in {released.output}")
    print(f"epsilon {float(released.guarantee.epsilon):g}, neighbours: {released.guarantee.neighbours}")

    rows = released.frame()
    hours = [(BEGIN + timedelta(hours=hour)).timestamp() for hour in range(1, len(rows) + 1)]
    in_the_air = (read_frame(frame).states_at(hours) > 0).sum(axis=0)
    rows = rows.with_columns(truth=pl.Series(in_the_air))
    print(rows.select("time", "truth", "estimate", "standard_error").tail(8))
    off = np.sqrt(np.mean((rows["estimate"].to_numpy() - in_the_air) ** 2))
    print(f"root mean square error {off:.1f} flights, of {in_the_air.max()} at the busiest hour")


if __name__ == "__main__":
    main()
