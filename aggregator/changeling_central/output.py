"""A release's rows on disk, CSV or JSON lines by the file's suffix, appended at a known place.

The place is part of the saved state: after a crash the file is cut back to it and the pending rows are written again,
byte for byte, so that no row is missing, doubled or torn. The file opens with what the release says of itself, which
the command prints as well; nothing of it comes from the data, unless the calendar does, which is then said. What can be
made of rows afterwards costs nothing: a picture, or better estimates from nodes that closed later.
"""

import csv
import io
import json
import os
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from hashlib import sha256
from itertools import dropwhile, takewhile
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from changeling_protocol import Calendar, Constraint, Node
from changeling_statistics import constraint_in_words, format_duration, format_instant

from .budget import Unit
from .colours import COLOURS
from .composition import number
from .errors import BadState
from .mechanism import Guarantee
from .nodes import Level, NodeRelease
from .offers import Made, ReleaseMechanism
from .queries import Mean, Shown
from .saved import flush_folder, naming

if TYPE_CHECKING:
    from _hashlib import HASH

COLUMNS = ("period", "time", "name", "estimate", "standard_error")


class Row(NamedTuple):
    """What was published of one column at the end of one period.

    period: from 1 on. time: its end, ISO 8601. name: of the column. estimate: neither rounded nor clipped.
    standard_error: None where none is known.
    """

    period: int
    time: str
    name: str
    estimate: float
    standard_error: float | None


@dataclass(frozen=True, slots=True)
class Output:
    """A file, .csv or .jsonl. names: of the query's columns. unit: what one of the query's units is worth.

    about: what is said of the release at its head. mean: what is shown in place of the columns, None for these. nodes:
    whether the nodes that a level came with are written behind it.
    """

    path: Path
    names: tuple[str, ...]
    unit: float
    about: tuple[tuple[str, str], ...] = ()
    mean: Mean | None = None
    nodes: bool = False

    def __post_init__(self) -> None:
        if self.path.suffix not in (".csv", ".jsonl"):
            raise ValueError(f"the output is a .csv or a .jsonl file, got {self.path.name}")

    def header(self) -> bytes:
        """What the file begins with: what is said of the release, in lines that begin with a # or in one object.

        Then, in CSV, the names of the columns.
        """
        if self.path.suffix == ".jsonl":
            return (json.dumps({"release": dict(self.about)}, ensure_ascii=False) + "\n").encode() * bool(self.about)
        said = "".join(f"# {key}: {' '.join(value.split())}\n" for key, value in self.about)
        return (said + ",".join(COLUMNS) + "\n").encode()

    def rows(self, period: int, time: float, level: Level) -> bytes:
        """The file's rows of one period, one a column. An unknown standard error is an empty field, or null.

        time: the end of the period, Unix seconds.
        """
        return written_rows(self.path.suffix, period, time, [*self._levels(level), *self._nodes(level)])

    def _levels(self, level: Level) -> list[Shown]:
        if not level.values.size:
            return []
        if self.mean is not None:
            return self.mean.shown(level)
        error = sqrt(level.variance) * self.unit
        return [
            Shown(name, value * self.unit, error) for name, value in zip(self.names, level.values.tolist(), strict=True)
        ]

    def _nodes(self, level: Level) -> list[Shown]:
        return [
            Shown(node_name(name, each.node.width), value * self.unit, sqrt(each.variance) * self.unit)
            for each in (level.nodes if self.nodes else ())
            for name, value in zip(self.names, each.values.tolist(), strict=True)
        ]

    def size(self) -> int:
        """How many bytes there are; 0 where there is no file."""
        return self.path.stat().st_size if self.path.exists() else 0

    def published(self, at: int) -> "HASH":
        """The running SHA-256 of the first `at` bytes. Raises BadState where the file is shorter."""
        if self.size() < at:
            raise BadState(
                f"{self.path} has lost rows that were published: put the file back, or choose another output and "
                "count what this one cost"
            )
        running = sha256()
        if at:
            with self.path.open("rb") as file:
                while at and (part := file.read(min(at, 2**20))):
                    running.update(part)
                    at -= len(part)
        return running

    def torn(self, at: int, rows: bytes) -> bool:
        """Whether what follows byte `at` is what a crash leaves of these rows: as many bytes or fewer, some zero."""
        if not self.path.exists():
            return True
        with self.path.open("rb") as file:
            file.seek(at)
            tail = file.read(len(rows) + 1)
        return len(tail) <= len(rows) and all(byte in (0, row) for byte, row in zip(tail, rows, strict=False))

    def append(self, at: int, rows: bytes) -> int:
        """Write the rows at byte `at`, cutting whatever else follows, to the disk. Returns where the next ones go."""
        new = not self.path.exists()
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        with naming(self.path), os.fdopen(descriptor, "r+b") as file:
            file.seek(at)
            if file.read() != rows:
                file.truncate(at)
                file.seek(at)
                file.write(rows)
            file.flush()
            os.fsync(file.fileno())
        if new:
            flush_folder(self.path.parent)
        return at + len(rows)


def written_rows(suffix: str, period: int, time: float, shown: Sequence[Shown]) -> bytes:
    """The rows of one period, in a file with this suffix. time: the end of the period, Unix seconds."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for name, value, error in shown:
        row = (period, format_instant(time), name, float(value), float(error) if error == error else None)
        if suffix == ".csv":
            writer.writerow(["" if field is None else field for field in row])
        else:
            text.write(json.dumps(dict(zip(COLUMNS, row, strict=True)), ensure_ascii=False) + "\n")
    return text.getvalue().encode()


def node_name(name: str, periods: int) -> str:
    """The name of a row that holds a node. name: of the column. periods: how wide the node is."""
    return f"{name}, change over {periods} period{'s' * (periods > 1)}"


def over_window(periods: int) -> str:
    """What is added to a column's name where it is its change over a window of so many periods."""
    return f", change over the window of {periods} period{'s' * (periods > 1)}"


def read_about(path: Path) -> dict[str, str]:
    """What is said of a release at the head of its .csv or .jsonl file."""
    with path.open(encoding="utf-8", newline="") as file:
        if path.suffix == ".jsonl":
            said: dict[str, str] = json.loads(next(file, "{}")).get("release", {})
            return said
        heads = (line[2:].rstrip("\n").partition(": ") for line in takewhile(_is_about, file))
        return {key: value for key, _, value in heads}


def read_rows(path: Path) -> list[Row]:
    """What was published in a .csv or .jsonl file, in its order."""
    with path.open(encoding="utf-8", newline="") as file:
        if path.suffix == ".csv":
            rows: Sequence[dict[str, str]] = list(csv.DictReader(dropwhile(_is_about, file)))
        else:
            rows = [row for line in file if "release" not in (row := json.loads(line))]
    return [
        Row(
            int(row["period"]),
            row["time"],
            row["name"],
            float(row["estimate"]),
            None if row["standard_error"] in ("", None) else float(row["standard_error"]),
        )
        for row in rows
    ]


def _is_about(line: str) -> bool:
    return line.startswith("# ")


_EXACT = re.compile(r"-?0x[0-9a-f.]+p[+-]\d+")

_STATED = "stated with each row, as far as it is known"

About = tuple[tuple[str, str], ...]
"""What is said, by what it is about."""


def about_release(
    asked: str,
    calendar: Calendar,
    from_data: bool,
    constraint: Constraint,
    freeze: bool,
    unit: Unit,
    guarantee: Guarantee,
    mechanism: ReleaseMechanism[object],
    error: float | None,
) -> About:
    """The lines. asked: the query in words. from_data: the calendar is the data's.

    error: the standard error of every column, None where it is not one for all of them, or unknown.
    """
    first, last = format_instant(calendar.start), format_instant(calendar.time(calendar.periods))
    dates = f"{calendar.periods} of {format_duration(calendar.period)} from {first} to {last}"
    beyond = "left out (--freeze)" if freeze else "stop the release"
    return (
        ("query", asked),
        ("periods", dates + ", read from the data and not protected" * from_data),
        ("unit of privacy", unit.said),
        ("guarantee", f"{spent(guarantee.epsilon, guarantee.delta, guarantee.rho)}, for the whole release"),
        ("neighbours", guarantee.neighbours),
        ("source", guarantee.source),
        (
            "constraint",
            f"{constraint_in_words(constraint)}; mutations beyond it are {beyond}"
            if freeze
            else constraint_in_words(constraint),
        ),
        ("mechanism", mechanism.noise_in_words or described(mechanism.made_with())),
        ("standard error", _STATED if error is None else f"{error:.6g}, root mean square over the periods"),
    )


def spent(epsilon: Fraction, delta: Fraction, rho: Fraction | None = None) -> str:
    """A budget in words. rho: where it is in that, with the (epsilon, delta) that follows."""
    if rho is not None and not delta:
        return f"epsilon {number(epsilon)}, which is worth rho {_number(rho)} (zCDP)"
    if rho is not None:
        return f"rho {_number(rho)} (zCDP), so epsilon {number(epsilon)} at delta {number(delta)}"
    return f"epsilon {_number(epsilon)}" + (f", delta {_number(delta)}" if delta else "")


def described(made: Made) -> str:
    """What a mechanism was made with: its kind, shape, law and scale of its noise, in words."""
    parts = []
    for key, value in made.items():
        if isinstance(value, list):
            parts.append(f"{key} {' '.join(_plain(each) for each in value)}")
        elif key != "kind":
            parts.append(f"{key} {_plain(value)}")
    return "; ".join([str(made.get("kind", "")), ", ".join(parts)])


def _plain(value: int | str) -> str:
    """Numbers that are kept to the last bit, in decimals; anything else as it is."""
    words = str(value).split(" ")
    return " ".join(f"{float.fromhex(word):.6g}" if _EXACT.fullmatch(word) else word for word in words)


def _number(exact: Fraction) -> str:
    short = f"{float(exact):.10g}"
    return short if Fraction(short) == exact else str(exact)


MOST_LINES = 12


def save_release_plot(published: Path, path: Path, title: str) -> None:
    """Draw what a release file holds. The largest names are shown where there are many.

    ValueError where there is nothing to draw, or, naming the extra, no matplotlib.
    """
    try:
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ValueError("a plot needs matplotlib: pip install 'changeling[central]'") from error
    lines: dict[str, list[tuple[datetime, float, float | None]]] = defaultdict(list)
    for _, time, name, estimate, error_ in read_rows(published):
        lines[name].append((datetime.fromisoformat(time).replace(tzinfo=None), estimate, error_))
    if not lines:
        raise ValueError(f"{published} holds no releases to draw")
    levels = [name for name in lines if name.rpartition(", change over")[0] not in lines]  # nodes are no levels
    largest = sorted(levels, key=lambda name: -max(value for _, value, _ in lines[name]))[:MOST_LINES]
    figure = Figure(figsize=(9, 4.5), layout="constrained")
    axes = figure.subplots()
    banded = False
    for number, name in enumerate(largest):
        colour = COLOURS[number % len(COLOURS)]
        known = [(time, value, 2 * error) for time, value, error in lines[name] if error is not None]
        if known:
            banded = True
            at = date2num([time for time, _, _ in known])  # type: ignore[no-untyped-call]
            low, high = [value - error for _, value, error in known], [value + error for _, value, error in known]
            axes.fill_between(at, low, high, color=colour, alpha=0.15, lw=0)
        times, values, _ = zip(*lines[name], strict=True)
        axes.plot(times, values, color=colour, lw=1.2, ls="-" if number < len(COLOURS) else "--", label=name)
    locator = AutoDateLocator(minticks=3, maxticks=8)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    axes.grid(alpha=0.25, lw=0.5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_ylabel("estimate ± 2 standard errors" if banded else "estimate")
    axes.set_title(title, fontsize=11, loc="left")
    axes.legend(frameon=False, fontsize=8, ncols=2)
    figure.savefig(path, dpi=150)


_NODE = re.compile(r"(?P<name>.*), change over (?P<periods>\d+) periods?", re.S)
AT_ONCE = 128
"""Times whose weights are held in memory together."""


def check_windows(name: str, mechanism: ReleaseMechanism[object], levels: bool, window: int) -> None:
    """ValueError, which says what to take, where the published levels do not tell how far a window's change is off.

    name: of the mechanism. levels: it publishes the query's columns, and no mean. window: in periods.
    """
    if not levels:
        raise ValueError("windows are changes of counts and sums: take a sum in place of the mean")
    if mechanism.window_variance(window, window) is None:
        raise ValueError(
            f"--afterwards: the levels of {name} do not tell how far a window's change is off; take --nodes with hdcr "
            "or dcr, --mechanism square-root with a --delta or at --rho, or leave --afterwards out: then the windows "
            "are released directly"
        )


def save_afterwards(
    published: Path, calendar: Calendar, window: int | None, head: Output, levels: ReleaseMechanism[object] | None
) -> None:
    """Write the estimates from all nodes of an output, a row for each period and column, and the windows' changes.

    published: an output. window: in periods, None for none. head: the file that is written anew, and what it begins
    with. levels: the mechanism, where windows are to be read off its levels; None for an output with nodes.
    ValueError where there are no nodes.
    """
    rows = _from_nodes(published, window) if levels is None else _from_levels(published, window or 0, head, levels)
    suffix = head.path.suffix
    head.path.write_bytes(
        head.header() + b"".join(written_rows(suffix, n, calendar.time(n), rows[n]) for n in sorted(rows))
    )


def _from_levels(
    published: Path, window: int, head: Output, levels: ReleaseMechanism[object]
) -> dict[int, list[Shown]]:
    """The changes over windows that end with each period, as the levels tell them, with their exact errors."""
    at = {(row.period, row.name): row.estimate for row in read_rows(published)}
    rows: dict[int, list[Shown]] = defaultdict(list)
    for (period, name), value in at.items():
        variance = levels.window_variance(period, window) if period >= window else None
        if variance is not None:
            change = value - at.get((period - window, name), 0.0)
            rows[period].append(Shown(f"{name}{over_window(window)}", change, sqrt(variance) * head.unit))
    return rows


def _from_nodes(published: Path, window: int | None) -> dict[int, list[Shown]]:
    nodes: dict[str, list[NodeRelease]] = defaultdict(list)
    for row in read_rows(published):
        if (said := _NODE.fullmatch(row.name)) and row.standard_error is not None:
            node = Node(row.period - int(said["periods"]), row.period)
            nodes[said["name"]].append(NodeRelease(node, np.array([row.estimate]), row.standard_error**2))
    if not nodes:
        raise ValueError(f"{published} holds no nodes: release with --nodes")
    rows: dict[int, list[Shown]] = defaultdict(list)
    for name, each in nodes.items():
        for period, shown in _estimates(name, each, window):
            rows[period].append(shown)
    return rows


def _estimates(name: str, nodes: list[NodeRelease], window: int | None) -> list[tuple[int, Shown]]:
    last = max(release.node.end for release in nodes)
    network = network_of(nodes, last)
    changes = np.array([release.values for release in nodes], np.float64)
    levels = network.fit(changes)[:, 0]
    found = []
    for first in range(1, last + 1, AT_ONCE):
        times = list(range(first, min(first + AT_ONCE, last + 1)))
        to_zero = network.unit_sources(times)
        errors = np.sqrt(network.spread(to_zero, network.variance[:, None])[:, 0])
        found += [(t, Shown(f"{name}, afterwards", levels[t], error)) for t, error in zip(times, errors, strict=True)]
        if window is None or times[-1] < window:
            continue
        ends = [t for t in times if t >= window]
        sources = np.zeros((last + 1, len(ends)))
        for column, t in enumerate(ends):
            sources[t, column], sources[t - window, column] = 1.0, -1.0
        errors = np.sqrt(network.spread(sources, network.variance[:, None])[:, 0])
        label = f"{name}, afterwards{over_window(window)}"
        found += [
            (t, Shown(label, levels[t] - levels[t - window], error)) for t, error in zip(ends, errors, strict=True)
        ]
    return found
