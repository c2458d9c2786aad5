"""A data team reads what its server publishes: how many people hold each answer, with bands for all times at once.

    $ python examples/read_results.py https://surveys.example.org SURVEY

Where results are not public, $CHANGELING_TOKEN holds a token with the scope read.
Prints a row for each period: the estimate for each answer, and the ends of its band.
"""

import argparse
import os

import httpx
from rich.console import Console
from rich.table import Table

LEVEL = 0.95


def main() -> None:
    """Asks the server, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("server", help="the server's URL")
    parser.add_argument("survey", help="the survey's id, in hex")
    wanted = parser.parse_args()

    try:
        token = os.environ.get("CHANGELING_TOKEN")
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        response = httpx.get(
            f"{wanted.server}/v1/surveys/{wanted.survey}/series", params={"confidence": LEVEL}, headers=headers
        )
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise SystemExit(f"the server cannot be reached: {error}") from None
    if response.is_error:
        raise SystemExit(f"the server has no results: {response.json()['detail']}")
    published = response.json()
    series = [at for at in published["series"] if at["values"] is not None]  # a period that nobody reported is a gap
    table = Table(title=f"{published['question']} With {LEVEL:.0%} all of it lies within the bands.")
    for column in ("period ends", *published["answers"]):
        table.add_column(column, justify="right")
    for at in series:
        cells = [
            f"{value:,.0f} ({low:,.0f} to {high:,.0f})"
            for value, (low, high) in zip(at["values"], at["simultaneous"], strict=True)
        ]
        table.add_row(at["time"], *cells)
    Console(markup=False, emoji=False).print(table)  # what stands in brackets in an answer is shown as it is

    # Estimates are never clipped, so they may lie below zero, and their sums and differences stay unbiased.
    reports = sum(node["reports"] for node in published["nodes"])
    print(f"from {reports:,} reports on {len(published['nodes'])} nodes")


if __name__ == "__main__":
    main()
