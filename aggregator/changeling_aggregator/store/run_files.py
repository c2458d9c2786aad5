"""The files of runs on Spark: known to be this store's before the first of them is written, and deleted by it alone.

Tasks choose the names of what they write, so a run is known by how all of them begin, which no other run of any store
has. So several stores may have their files at one place.
"""

from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from sqlalchemy import Connection, select

from ..errors import Unwritable
from ..segments import Place, place_at
from .catalogue import RUN_ENDS, doom, forget_doomed
from .database import Transactions
from .id_files import registered_files
from .schema import doomed

if TYPE_CHECKING:
    from .opened import Store


def begin_run(connection: Connection, place: str, run: str) -> None:
    """From now on files at the place whose names begin with the run's, which no other has, are this store's."""
    doom(connection, place, f"{run}{RUN_ENDS}")


def sweep_runs(store: "Store", writing: Transactions, last: str | None = None) -> None:
    """Delete the files of all runs that were begun, but for those with ids that count. For who has the turn to fold.

    Files are listed first; then a transaction of the turn says which of them count. It raises for a process that has
    lost its turn, which so deletes nothing of the run that its successor has begun. A place that cannot be reached is
    swept another time: that is no reason not to count a run.

    last: the run that has just ended, if one has. Other runs that have no files left are then forgotten; this one is
    not, as a task of it that Spark has given up may still write.
    """
    with store.reading() as connection:
        begun = connection.execute(select(doomed.c.place, doomed.c.name).where(doomed.c.name.endswith(RUN_ENDS))).all()
    starts: dict[str, list[str]] = {}
    for place, start in begun:
        starts.setdefault(place, []).append(start)
    lying: dict[tuple[str, str], list[str]] = {}
    for place, of_place in starts.items():  # each is listed once: an object store is paid for that
        with suppress(Unwritable):
            names = [each.name for each in place_at(place).kept(*of_place)]
            lying |= {(place, start): [name for name in names if name.startswith(start)] for start in of_place}
    with writing() as connection:
        named = {each.name for each in registered_files(connection)}
        if last is not None:
            gone = [run for run, names in lying.items() if not names]
            forget_doomed(connection, [run for run in gone if run[1] != f"{last}{RUN_ENDS}"])
    for (place, _), names in lying.items():
        _remove(place_at(place), names, named)


def remove_run(store: "Store", place: Place, run: str) -> None:
    """Delete the files of a run that has failed."""
    with store.reading() as connection:
        named = {each.name for each in registered_files(connection)}
    with suppress(Unwritable):
        _remove(place, [each.name for each in place.kept(f"{run}{RUN_ENDS}")], named)


def _remove(place: Place, names: Iterable[str], named: Collection[str]) -> None:
    with suppress(Unwritable):
        for name in names:
            if name not in named:
                place.remove(name)
