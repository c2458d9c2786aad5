"""Sweeps: surveys simulated over a grid of settings, on all cores, resumed where they were killed.

An experiment is a TOML file. What stands in a list is varied, and every combination is a cell:

    seed = 1
    surveys = 20                 # of each cell
    answers = 2
    periods = 12
    at_most = [2, 4]             # changes of an entry; appearing counts
    changes = 1.5                # that made-up entries really make, on average
    entries = [10_000, 100_000]
    epsilon = [1, 2, 4, 8]
    world = ["drift", "shift", "seasons", "heavy"]

A cell's coins come from its own settings, so its row is the same whatever else is run, in which order, and by how many
processes. Rows are kept in a file beside the output as they are done; the output is written in the order of the grid,
whole or not at all.
"""

import json
import os
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, fields
from decimal import Decimal, InvalidOperation
from hashlib import sha256
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from changeling_protocol import AtMost
from changeling_statistics import Wish, optimal_plan, steady_changes
from threadpoolctl import threadpool_limits

from .experiment import simulate
from .population import HISTORIES, Population, World, synthetic_calendar, synthetic_changelog

MOST_CELLS = 100_000
Row: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination of settings.

    seed: that of the whole sweep. surveys: how many are simulated. answers, periods, entries: of the population, which
    is there from the first period to the last, and whose shares swing once over the calendar. at_most: the constraint
    that the survey makes. changes: of an entry after its first answer, on average, as a decimal number in words.
    epsilon: likewise. questions: how many such questions the survey asks; figures are of one. world: how answers change
    over time, as `World` says.
    Raises ValueError for numbers that cannot be.
    """

    seed: int
    surveys: int
    answers: int
    periods: int
    at_most: int
    changes: str
    entries: int
    epsilon: str
    questions: int
    world: str

    def __post_init__(self) -> None:
        for name in ("surveys", "answers", "periods", "at_most", "entries", "questions"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0 <= _decimal("changes", self.changes) <= self.periods - 1:
            raise ValueError(f"changes are 0 to {self.periods - 1} in {self.periods} periods, got {self.changes}")
        if self.world not in list(World):
            raise ValueError(f"world is one of {', '.join(World)}, got {self.world!r}")
        if not _decimal("epsilon", self.epsilon) > 0:
            raise ValueError(f"epsilon must be above 0, got {self.epsilon}")

    @property
    def key(self) -> str:
        """The cell's settings as one line, by which its row is found again."""
        return json.dumps(asdict(self), sort_keys=True)

    @property
    def wish(self) -> Wish:
        """The wish that the planner is given: it knows how often such entries change on average, and nothing else."""
        calendar, constraint = synthetic_calendar(None, None, self.periods), AtMost(self.at_most)
        told = min(float(self.changes), self.at_most - 1.0)
        return Wish(
            answers=self.answers,
            calendar=calendar,
            constraint=constraint,
            epsilon=Decimal(self.epsilon),
            devices=self.entries,
            closed=True,
            expected=steady_changes(calendar, constraint, told),
            minimum=1,
            questions=self.questions,
        )


def _decimal(name: str, text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ValueError(f"{name} must be a number, got {text!r}") from None


def read_sweep(path: Path) -> list[Cell]:
    """The cells of an experiment's file, in the order of its grid: what is written last varies fastest.

    Raises ValueError for what is no TOML, for words that are not known or are missing, and for values of another type.
    """
    try:
        read = tomllib.loads(path.read_text(encoding="utf-8"), parse_float=str)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no TOML: {error}") from None
    written = {"seed": 0, "surveys": 20, "questions": 1, "world": World.DRIFT.value, **read}
    kinds = {field.name: field.type for field in fields(Cell)}
    for problem, names in (("no setting", written.keys() - kinds), ("missing", kinds.keys() - written)):
        if names:
            raise ValueError(f"{path}: {problem}: {', '.join(sorted(names))}")
    lists = [_values(name, value, kinds[name] is str) for name, value in written.items()]
    if (cells := int(np.prod([float(len(each)) for each in lists]))) > MOST_CELLS:
        raise ValueError(f"{path}: a sweep has at most {MOST_CELLS:,} cells, got {cells:,}")
    return [Cell(**dict(zip(written, combination, strict=True))) for combination in product(*lists)]


def _values(name: str, value: object, decimal: bool) -> list[Any]:
    """The values of a setting: whole numbers, or decimal ones, which are kept as they are written."""
    values = value if isinstance(value, list) else [value]
    allowed = int | str if decimal else int
    if not values or not all(isinstance(each, allowed) and not isinstance(each, bool) for each in values):
        raise ValueError(f"{name} must be a number, or a list of some, got {value!r}")
    return [str(each) for each in values] if decimal else values


def simulated(cell: Cell) -> Row:
    """The settings of a cell with its figures, in shares of the entries.

    predicted: the standard error that the planner states. noise: what it was, root mean square over surveys, times and
    answers, against what devices reported on. error: against the truth, so with the bias of freezing. coverage: which
    part of the 95% intervals held what devices reported on. reason: why no plan can be made, in place of all these.
    """
    row: Row = dict.fromkeys(("predicted", "noise", "error", "coverage"))
    generator = np.random.default_rng(list(sha256(cell.key.encode()).digest()))
    try:
        wish = cell.wish
        option = optimal_plan(wish).option
        drawn = min(cell.entries, HISTORIES)
        changelog = synthetic_changelog(
            cell.answers, drawn, float(cell.changes), wish.calendar, generator, world=World(cell.world)
        )
    except ValueError as reason:
        return {**asdict(cell), **row, "reason": str(reason)}
    population = Population.from_changelog(changelog, wish.calendar, wish.constraint)
    population = population.resampled(cell.entries, generator)
    survey = wish.survey(option.plan, population.answers).about(0)
    with threadpool_limits(1):
        tried = [simulate(population, survey, generator) for _ in range(cell.surveys)]
    row["predicted"] = option.prediction.mean
    row["noise"] = float(np.sqrt(np.mean([each.rms_noise**2 for each in tried])))
    row["error"] = float(np.sqrt(np.mean([each.rms_error**2 for each in tried])))
    row["coverage"] = float(np.nanmean([each.coverage for each in tried]))
    return {**asdict(cell), **row, "reason": ""}


def partial_rows(output: Path) -> Path:
    """The file beside an output that holds the rows that are done, a line of JSON each."""
    return output.with_name(output.name + ".partial")


def sweep(cells: Sequence[Cell], output: Path, processes: int | None = None) -> Iterator[Row]:
    """Simulates the cells that are not done yet, gives their rows as they are done, and writes the output.

    output: .csv or .parquet, of one row for each cell in the order of `cells`; what is done before it is whole stands
    in `partial_rows`, from which a killed sweep goes on. processes: how many run at once; None for all cores.
    Raises ValueError for another suffix, OSError where nothing can be written.
    """
    if output.suffix not in (".csv", ".parquet"):
        raise ValueError(f"write a sweep to .csv or .parquet, got {output}")
    partial = partial_rows(output)
    done = _done(partial)
    left = [cell for cell in dict.fromkeys(cells) if cell.key not in done]
    with partial.open("ab") as kept, ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        futures = {pool.submit(simulated, cell): cell for cell in left}
        try:
            for future in as_completed(futures):
                row = future.result()
                kept.write(json.dumps([futures[future].key, row]).encode() + b"\n")
                kept.flush()
                os.fsync(kept.fileno())
                done[futures[future].key] = row
                yield row
        finally:
            pool.shutdown(cancel_futures=True)
    _write(output, [done[cell.key] for cell in cells])
    partial.unlink()


def rows_of(output: Path) -> list[Row]:
    """The rows of a sweep that was written, as they were simulated; what varies is what has several values."""
    import polars

    table = polars.read_csv(output) if output.suffix == ".csv" else polars.read_parquet(output)
    return table.to_dicts()


def varied(rows: Sequence[Row]) -> list[str]:
    """The settings of which the rows have several values, in the order of their columns."""
    settings = [field.name for field in fields(Cell)]
    return [name for name in rows[0] if name in settings and len({row[name] for row in rows}) > 1]


def _done(partial: Path) -> dict[str, Row]:
    """The rows that are done, by the cells' keys; a last line that was cut off is taken away."""
    if not partial.exists():
        return {}
    whole, _, cut = partial.read_bytes().rpartition(b"\n")
    if cut:
        os.truncate(partial, len(whole) + 1 if whole else 0)
    return dict(json.loads(line) for line in whole.splitlines())


def _write(output: Path, rows: Sequence[Row]) -> None:
    import polars

    table = polars.DataFrame(rows, infer_schema_length=None)
    new = output.with_name(output.name + ".new")
    if output.suffix == ".csv":
        table.write_csv(new)
    else:
        table.write_parquet(new)
    new.replace(output)
