"""Kills a fold with SIGKILL at each of its SQL statements in turn, and folds again what it left.

A program of its own: it forks before anything starts a thread. Arguments: a folder with `server.db` to copy, the time
to fold at, the most envelopes of a batch. Prints a JSON line per kill: what the store held right after, and what it
holds once folded to the end.
"""

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from changeling_aggregator.fold import fold
from changeling_aggregator.store import Store
from sqlalchemy import event


def main(folder: Path, now: float, batch: int) -> None:
    statement = 0
    killed = True
    while killed:
        statement += 1
        copy = folder / f"kill-{statement}"
        copy.mkdir()
        shutil.copy(folder / "server.db", copy)
        killed = in_child(lambda: fold_and_die(copy, now, batch, statement)) == -signal.SIGKILL  # noqa: B023
        in_child(lambda: show(copy, now, batch))  # noqa: B023


def in_child(act: Callable[[], None]) -> int:
    """Runs `act` in a process of its own; the exit code."""
    child = os.fork()
    if child == 0:
        act()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def fold_and_die(folder: Path, now: float, batch: int, statement: int) -> None:
    """Folds; just before SQL statement number `statement`, or the commit in its place, the process is killed."""
    store = Store.open(folder / "server.db")
    killed_at(statement, store)
    fold(store, now, batch)


def killed_at(statement: int, store: Store) -> Callable[[], None]:
    """The process is killed before that SQL statement or commit; each call of what this returns counts as one, too."""
    left = statement

    def count(*_: object) -> None:
        nonlocal left
        left -= 1
        if left <= 0:  # also where threads count at once
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(store._database.engine, "before_cursor_execute", count)
    event.listen(store._database.engine, "commit", count)
    return count


def show(folder: Path, now: float, batch: int) -> None:
    store = Store.open(folder / "server.db")
    after_kill = contents(store)
    fold(store, now, batch)
    print(json.dumps([after_kill, contents(store)]), flush=True)


def contents(store: Store) -> dict[str, object]:
    """How much is unfolded, how many runs of ids there are, all tallies and attendance, and refusals."""
    with store.view() as view:
        return {
            "unfolded": view.unfolded(),
            "runs": sum(len(view.runs_of_survey(id_)) for id_ in view.signed_surveys()),
            "tallies": {
                f"{track}/{node}": [tally.reports, tally.slots.tolist()]
                for id_ in view.signed_surveys()
                for (track, node), tally in view.tallies(id_).items()
            },
            "attendance": {
                f"{group}/{period}": [here.heard, here.new, here.missed]
                for id_ in view.signed_surveys()
                for (group, period), here in view.tallies(id_).attendance.items()
            },
            "refused": {
                reason.value: count for id_ in view.signed_surveys() for reason, count in view.refusals(id_).items()
            },
        }


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
