"""`changeling ask`: counting queries of one table, answered once, with an order that nested answers keep."""

import csv
import gzip
import io
import re
from collections.abc import Sequence
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Annotated

import typer
from changeling_statistics import swallows_rows

from ..errors import BadState
from ..noise import Noise
from ..predicate import Value
from ..releasing.account import Account
from ..releasing.header import spent
from ..releasing.ledger import Charge
from ..releasing.limits import check_output
from ..releasing.source import ledger_beside
from ..releasing.spending import pure_of, total_of
from ..releasing.unit import ENTRY
from ..saved import replaced
from ..sigma.algebra import Algebra
from ..sigma.answer import Answer
from ..sigma.domain import MOST_VALUES, Domain, Table
from ..sigma.grouped import Grouped, grouped
from ..sigma.query import Query
from ..sigma.sigma_counting import SigmaCounting

if TYPE_CHECKING:
    from polars import DataFrame

COLUMNS = ("query", "value", "estimate", "standard_error")
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
        bool,
        typer.Option("--grouped", help="Algebras for queries of the same columns: less noise, less order."),
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
    counting = grouped(queries, spends) if apart else SigmaCounting(Algebra.of(queries), spends)
    rows = domain.table(table_of(table, domain))
    path = ledger or ledger_beside(table)
    if path is None:  # a table is always a file
        raise ValueError(f"there is no ledger beside {table}")
    if path.resolve() == output.resolve():
        raise ValueError(f"{output} is the ledger, which answers would be written over: choose another output")
    account = Account(path, ENTRY, Charge.of(str(output), "; ".join(query), cost), None, total_of(total))
    known = account.opened(None, "")
    from ..noise import OpenDPNoise  # OpenDP loads slowly, so only now

    added_up = account.settled(token_hex(8), known)
    replaced(output, answered(counting, queries, rows, OpenDPNoise()))
    typer.echo(f"changeling: {said_of(counting)}", err=True)
    typer.echo(f"changeling: {len(queries)} answers in {output}; {added_up.said()}", err=True)


def domain_of(columns: list[str]) -> Domain:
    """What the columns may hold, as it is declared: NAME=0..120, NAME=a,b,c or NAME=yes/no, which is a bool.

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

    types = {str: pl.String, int: pl.Int64, bool: pl.Boolean}
    schema = pl.Schema({name: types[type(held[0])] for name, held in zip(domain.names, domain.values, strict=True)})
    try:
        if path.suffix == ".parquet":
            return pl.read_parquet(path, columns=list(schema)).cast(schema)
        read = pl.read_csv(path, columns=list(schema), schema_overrides=schema)
        _check_quotes(path, domain)
        return read
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
        (header.index(name), {str(value).lower() for value in values})
        for name, values in zip(domain.names, domain.values, strict=True)
    ]
    try:
        for row in reader:
            if swallows_rows(row, lambda fields: all(fields[at].lower() in values for at, values in declared)):
                raise ValueError(f"{path}: a quote is opened and not closed, and goes on over rows: close it")
    except csv.Error as error:
        raise ValueError(f"{path}: a quote is opened and not closed: {error}") from None


def answered(counting: SigmaCounting | Grouped, queries: Sequence[Query], table: Table, noise: Noise) -> bytes:
    """The file of answers: what is promised, then a row for each query."""
    text = io.StringIO()
    text.write(f"# {said_of(counting)}\n")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for query, answer in zip(queries, _answers(counting, queries, table, noise), strict=True):
        writer.writerow((query.text, answer.value, answer.estimate, f"{answer.standard_error:.17g}"))
    return text.getvalue().encode()


def said_of(counting: SigmaCounting | Grouped) -> str:
    """The guarantee, and what it is made of, in a line."""
    guarantee = counting.guarantee
    algebras = counting.algebras if isinstance(counting, Grouped) else (counting,)
    atoms = " and ".join(f"{each.algebra.atoms} atoms of laplace noise {each.noise.scale:.6g}" for each in algebras)
    return f"{spent(guarantee.epsilon, guarantee.delta)}; {guarantee.neighbours}; {guarantee.source}; {atoms}"


def _answers(counting: SigmaCounting | Grouped, queries: Sequence[Query], table: Table, noise: Noise) -> list[Answer]:
    if isinstance(counting, Grouped):
        groups, _ = counting.step(counting.start(), table, noise)
        found = [counting.answer(groups, query) for query in queries]
    else:
        state, _ = counting.step(counting.start(), table, noise)
        found = [counting.answer(state, query) for query in queries]
    return [answer for answer in found if answer is not None]  # algebras hold all queries that they were made of
