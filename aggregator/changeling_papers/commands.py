"""`changeling count`, of a stream, and `changeling ask`, of one table.

`count` is the pan-private counter with no changelog beside it: numbers come in on standard input, one a period, and go
out with noise. Between two of them there is a file of fixed length that is written over in place, and nothing else.
Noise is drawn when it is needed, never ahead by the thousand: what a process holds could be seized as well. `ask`
answers counting queries once, with an order that nested answers keep.
"""

import csv
import gzip
import io
import re
import sys
from collections.abc import Sequence
from fractions import Fraction
from math import ceil, floor, sqrt
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Annotated

import typer
from changeling_central import (
    ENTRY,
    BadState,
    Charge,
    Noise,
    ReleaseAccount,
    Value,
    check_output,
    check_periods,
    held,
    ledger_beside,
    pure_of,
    replaced,
    spent,
    total_of,
)
from changeling_statistics import swallows_rows

from .counters import PanPrivateCounter, overwrite, read_over
from .queries import MOST_VALUES, Algebra, Domain, Query, Table
from .sigma import Grouped, SigmaCounting, grouped

if TYPE_CHECKING:
    from polars import DataFrame


def count(
    periods: Annotated[int, typer.Option(help="How many numbers there will be, one a period; known in advance.")],
    at_most: Annotated[int, typer.Option(help="An entry changes the numbers of at most so many periods, by 1 each.")],
    memory: Annotated[Path, typer.Option(help="The file that is written over. Nothing else is kept.")],
    epsilon: Annotated[
        str | None, typer.Option(help="What an entry may lose by all outputs and one seizure of the memory.")
    ] = None,
    rho: Annotated[str | None, typer.Option(help="In place of epsilon: of concentrated privacy (zCDP).")] = None,
) -> None:
    """Count a stream with a memory that may be seized: a number a line comes in, period,estimate,standard_error go out.

    Each number is by how much the count changed in one period, such as 3 or -1. Run again with the same memory, it
    goes on with the period after the last one that was taken in. Keep no copy of what you feed it: the promise speaks
    of the memory and the outputs alone. Use a disk that overwrites in place.
    """
    from changeling_central import OpenDPNoise  # OpenDP loads slowly, so only now

    if at_most < 1:
        raise ValueError(f"an entry changes the numbers of at least one period, got {at_most}")
    check_periods(periods)
    _, spends = pure_of(epsilon, rho)
    counter = PanPrivateCounter(periods, spends / at_most)
    with held(memory):
        known = memory.exists() and memory.stat().st_size > 0
        state = counter.resumed(read_over(memory)) if known else counter.start()
        typer.echo(
            f"changeling: {spent(spends, Fraction(0))} for an entry that changes at most {at_most} periods, by all "
            f"outputs and one seizure of {memory} together; standard error {sqrt(counter.variance(1)):.6g}; period "
            f"{state.time + 1} of {periods} is next",
            err=True,
        )
        noise = OpenDPNoise()
        for line in filter(str.strip, sys.stdin):
            try:
                value = int(line)
            except ValueError:  # a line is never repeated
                raise ValueError(f"period {state.time + 1}: not a whole number; nothing was drawn for it") from None
            state, estimate = counter.step(state, value, noise)
            overwrite(memory, counter.saved(state))
            typer.echo(f"{state.time},{estimate},{sqrt(counter.variance(state.time)):.17g}")
            sys.stdout.flush()


COLUMNS = ("query", "value", "estimate", "standard_error", "low", "high")
_TRUTHS = {"yes": True, "no": False, "1": True, "0": False, "true": True, "false": False}
_SPAN = re.compile(r"(-?\d+)\.\.(-?\d+)")


def ask(
    table: Annotated[Path, typer.Argument(help="A .csv, .csv.gz or .parquet file, a row for each entry.")],
    column: Annotated[
        list[str], typer.Option(help="What a column may hold: age=0..120, city=Paris,Rome,elsewhere, member=yes/no.")
    ],
    query: Annotated[list[str], typer.Option(help="age >= 18 and city == 'Rome'. Give as many as you like, at once.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="A .csv file.")],
    epsilon: Annotated[str | None, typer.Option(help="What a row may lose by all answers together.")] = None,
    rho: Annotated[str | None, typer.Option(help="In place of epsilon: of concentrated privacy (zCDP).")] = None,
    apart: Annotated[
        bool, typer.Option("--grouped", help="Algebras for queries of the same columns: less noise, less order.")
    ] = False,
    ledger: Annotated[Path | None, typer.Option(help="Where losses add up; TABLE.ledger if left out.")] = None,
    total: Annotated[
        str | None, typer.Option("--budget", help="What all that is asked of the table may cost: 3, or rho=1/2.")
    ] = None,
) -> None:
    """Answer counting queries of one table by sigma-counting: nested queries are never out of order.

    Columns are declared, not read from the table. Noise is drawn once: asking again, or asking more, costs again, and
    is added up in the ledger. A row that is replaced, and not added or removed, loses twice epsilon.
    """
    cost, spends = pure_of(epsilon, rho)
    check_output(output)
    if output.exists():
        raise BadState(f"{output} exists: asking again would draw again; choose another output")
    domain = domain_of(column)
    queries = [Query.of(domain, text) for text in query]
    for each in queries:
        _check_tells(each)
    counting = grouped(queries, spends) if apart else Grouped((SigmaCounting(Algebra.of(queries), spends),))
    rows = domain.table(table_of(table, domain))
    path = ledger or ledger_beside(table)
    if path is None:  # a table is always a file
        raise ValueError(f"there is no ledger beside {table}")
    if path.resolve() == output.resolve():
        raise ValueError(f"{output} is the ledger, which answers would be written over: choose another output")
    account = ReleaseAccount(path, ENTRY, Charge.of(output, "; ".join(query), cost), None, total_of(total), table)
    for sentence in account.doubts():
        typer.echo(f"changeling: not private, for the curator alone: {sentence}", err=True)
    known = account.opened()
    from changeling_central import OpenDPNoise  # OpenDP loads slowly, so only now

    added_up = account.settled(token_hex(8), known)
    replaced(output, answered(counting, queries, rows, OpenDPNoise()))
    typer.echo(f"changeling: {said_of(counting)}", err=True)
    typer.echo(f"changeling: {len(queries)} answers in {output}; {added_up.said()}", err=True)


def _check_tells(query: Query) -> None:
    """ValueError for a query that is true of no row there can be, by what the columns declare."""
    if not query.columns and not query.mask:
        raise ValueError(f"{query.text!r} is true of no row that the columns declare: nothing was charged")


def domain_of(columns: list[str]) -> Domain:
    """The domain that these columns are declared to have: NAME=0..120, NAME=a,b,c or NAME=yes/no, which is a bool.

    ValueError for anything else.
    """
    declared: dict[str, list[Value]] = {}
    for text in columns:
        name, equals, values = text.partition("=")
        if not equals or not values:
            raise ValueError(f"a column is declared as age=0..120 or city=Paris,Rome, got {text!r}")
        if name in declared:
            raise ValueError(f"the column {name!r} is declared twice")
        if span := _SPAN.fullmatch(values):
            low, high = int(span[1]), int(span[2])
            declared[name] = list(range(low, min(high, low + MOST_VALUES) + 1))
        else:
            declared[name] = [False, True] if values == "yes/no" else list(values.split(","))
    return Domain.of(**declared)


def table_of(path: Path, domain: Domain) -> "DataFrame":
    """The columns of the domain in a file, read as what they are declared to hold.

    ValueError for a file that cannot be read so; it repeats no field.
    """
    import polars as pl
    from polars.exceptions import PolarsError

    held = {name: type(values[0]) for name, values in zip(domain.names, domain.values, strict=True)}
    schema = {name: pl.Int64 if kind is int else pl.String for name, kind in held.items()}
    truths = [
        pl.col(name).str.to_lowercase().replace_strict(_TRUTHS, default=None, return_dtype=pl.Boolean)
        for name, kind in held.items()
        if kind is bool
    ]
    try:
        if path.suffix == ".parquet":
            return pl.read_parquet(path, columns=list(schema)).cast(pl.Schema(schema)).with_columns(truths)
        read = pl.read_csv(path, columns=list(schema), schema_overrides=schema)
        _check_quotes(path, domain)
        return read.with_columns(truths)
    except PolarsError:
        raise ValueError(
            f"{path} has no columns {', '.join(schema)}, or one holds what it is not declared to hold"
        ) from None


def _check_quotes(path: Path, domain: Domain) -> None:
    """ValueError where a quote that nobody closed takes rows into a field, which polars reads without a word."""
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if b'"' not in content:
        return
    reader = csv.reader(io.StringIO(content.decode("utf-8-sig", "replace"), newline=""), strict=True)
    header = next(reader, [])
    declared = [
        (header.index(name), set(_TRUTHS) if values[0] is False else {str(value).lower() for value in values})
        for name, values in zip(domain.names, domain.values, strict=True)
    ]
    try:
        for row in reader:
            if swallows_rows(row, lambda fields: all(fields[at].lower() in values for at, values in declared)):
                raise ValueError(f"{path}: a quote is opened and not closed, and goes on over rows: close it")
    except csv.Error as error:
        raise ValueError(f"{path}: a quote is opened and not closed: {error}") from None


def answered(counting: Grouped, queries: Sequence[Query], table: Table, noise: Noise) -> bytes:
    """The file of answers: what is promised, then a row for each query."""
    text = io.StringIO()
    text.write(f"# {said_of(counting)}\n")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    state, _ = counting.step(counting.start(), table, noise)
    for query in queries:
        if (answer := counting.answer(state, query)) is not None:  # it is None for no query that was clustered
            low, high = answer.interval
            writer.writerow(
                (query.text, answer.value, answer.estimate, f"{answer.standard_error:.6g}", floor(low), ceil(high))
            )
    return text.getvalue().encode()


def said_of(counting: Grouped) -> str:
    """The guarantee, and what it is made of, in a line."""
    guarantee = counting.guarantee
    atoms = " and ".join(
        f"{each.algebra.atoms} atoms of laplace noise {each.noise.scale:.6g}" for each in counting.algebras
    )
    return f"{spent(guarantee.epsilon, guarantee.delta)}; {guarantee.neighbours}; {guarantee.source}; {atoms}"
