"""The last check of every reader: an entry's times rise, its answers change, and the old answer is the one it holds.

On columns, so that all readers refuse the same rows in the same words.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import BadChangelog
from .columns import Changelog
from .form import ANSWER, Columns
from .mutations import States

ABSENT = -1
"""Stands for the old state of a row whose old answer is no state."""


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """Rows as they came, in columns of shape (rows,), each of them checked by itself.

    names: the names of the states 1, 2, …; state 0 is NULL.
    entries: the names of the entries.
    entry: the row's entry, numbered from 0.
    time: Unix microseconds.
    state: the state that the entry is in from then on.
    old: the state that the row says it was in before, ABSENT if that is no state; None if rows do not say it.
    number: the number by which errors name the row.
    owner: whose the row's entry is, numbered from 0; None if nobody asked.
    """

    names: Sequence[str]
    entries: tuple[str, ...]
    entry: NDArray[np.int64]
    time: NDArray[np.int64]
    state: NDArray[np.int64]
    old: NDArray[np.int64] | None
    number: NDArray[np.int64]
    owner: NDArray[np.int64] | None = None


def in_order(
    rows: Encoded,
    unit: str,
    answers: Sequence[str] | None,
    columns: Columns = Columns(),  # noqa: B008 frozen
) -> Changelog:
    """The changelog that the rows make together.

    unit: what errors call a row.
    answers: what `rows.names` are, if the answers were given; they then keep their order, and else are sorted.
    columns: where the rows' answers are from.
    Raises BadChangelog, which names the first bad row.
    """
    if not len(rows.number):
        raise BadChangelog(f"{unit} 1: there is not one mutation")
    names = list(rows.names) if answers is not None else sorted(rows.names)
    code = {name: state for state, name in enumerate(["", *names])}
    numbers = [code[name] for name in ["", *rows.names]]
    recode: States = np.array(numbers, np.uint16) if len(names) < 2**16 else np.array(numbers, np.uint32)
    order = np.argsort(rows.entry, kind="stable")
    entry, time, number = rows.entry[order], rows.time[order], rows.number[order]
    state = recode[rows.state[order]]
    owner = None if rows.owner is None else _of_entries(rows, rows.owner, unit, columns.owner)
    changelog = Changelog(tuple(names), rows.entries, entry, time, state, number, unit, owner)
    stated = None
    if rows.old is not None:
        stated = np.where(rows.old < 0, ABSENT, recode[np.maximum(rows.old, 0)].astype(np.int64))[order]
    lenient = columns.answer != ANSWER
    _check(changelog, number, unit, stated, lenient)
    return changelog.take(changelog.state != changelog.before()) if lenient else changelog


def _of_entries(rows: Encoded, owner: NDArray[np.int64], unit: str, column: str | None) -> NDArray[np.int64]:
    """Whose each entry is. Raises BadChangelog, which names the first row that contradicts an earlier one."""
    entries, first = np.unique(rows.entry, return_index=True)
    of_entries = np.zeros(len(rows.entries), np.int64)
    of_entries[entries] = owner[first]
    if bad := np.flatnonzero(owner != of_entries[rows.entry])[:1].tolist():
        raise BadChangelog(f"{unit} {rows.number[bad[0]]}: an earlier row of its entry has another {column}")
    return of_entries


def _check(
    changelog: Changelog,
    number: NDArray[np.int64],
    unit: str,
    stated: NDArray[np.int64] | None,
    lenient: bool,
) -> None:
    entry, state, before = changelog.entry, changelog.state, changelog.before()
    first = np.concatenate([[True], entry[1:] != entry[:-1]])
    passed = np.concatenate([[1], np.diff(changelog.time)])
    faults = [
        (~first & (passed < 0), "its time is before the entry's previous row"),
        (~first & (passed == 0), "it has the same entry and time as an earlier row"),
    ]
    if not lenient:
        faults += [
            ((state == 0) & (before == 0), "it deletes an entry that has no answer"),
            ((state != 0) & (state == before), "it repeats the entry's answer, so it is no mutation"),
        ]
    if stated is not None:
        faults.append((stated != before, "its old answer is not what the entry holds"))
    first_rows = [(int(number[bad].min()), fault) for bad, fault in faults if bad.any()]
    if first_rows:
        row, fault = min(first_rows, key=lambda pair: pair[0])
        raise BadChangelog(f"{unit} {row}: {fault}")


def unknown_answer(answers: Sequence[str]) -> str:
    """The fault of a row whose answer is none of those that are allowed; does not repeat it."""
    return f"unknown answer; the answers are {', '.join(answers)}"
