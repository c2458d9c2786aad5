"""The files of runs on Spark: known to be this store's before the first of them is written, and deleted by it alone.

Tasks choose the names of what they write, so a run is known by how all of them begin, which no other run of any store
has. So several stores may have their files at one place.
"""

from contextlib import suppress

from sqlalchemy import Connection, select

from ..errors import Unwritable
from ..segments import place_at
from .catalogue import RUN_ENDS, doom, forget_doomed
from .database import Transactions
from .id_files import registered_files
from .opened import Store
from .schema import doomed


def begin_run(connection: Connection, place: str, run: str) -> None:
    """From now on files at the place whose names begin with the run's, which no other has, are this store's."""
    doom(connection, place, f"{run}{RUN_ENDS}")


def sweep_runs(store: Store, writing: Transactions, run: str, *, alone: bool) -> None:
    """Delete the files of runs, but for those with ids that count; forget the runs of which nothing is left.

    run: the last one, which is remembered: a task of it that was given up may still write. alone: whether only its
    files are deleted, as it has failed. Who has moved the cursors may delete others' files too: whoever still works on
    the same requests is overtaken. What cannot be deleted now is deleted after a later run.
    """
    with store.reading() as connection:
        named = {each.name for each in registered_files(connection)}
        begun = [*connection.execute(select(doomed.c.place, doomed.c.name).where(doomed.c.name.endswith(RUN_ENDS)))]
    done = []
    for place, start in begun:
        if alone and start != f"{run}{RUN_ENDS}":
            continue
        with suppress(Unwritable):  # another time: the run is counted whether its place can be reached or not
            lying = [each.name for each in place_at(place).kept(start)]
            for name in lying:
                if name not in named:
                    place_at(place).remove(name)
            if start != f"{run}{RUN_ENDS}" and named.isdisjoint(lying):
                done.append((place, start))
    if done:
        with writing() as connection:
            forget_doomed(connection, done)
