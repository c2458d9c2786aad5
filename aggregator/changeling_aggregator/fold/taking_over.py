"""The ids that a fold beyond one machine left in files, taken into the database's runs before it is folded here."""

from collections.abc import Mapping

from ..segments import place_at
from ..store import ClosingKey, Store
from ..store.counted import sealed_period
from ..store.database import Transactions
from ..store.id_files import IdFile, registered_files, replace_files
from .ids import merged_ids
from .runs import add_ids


def take_over_files(store: Store, writing: Transactions) -> None:
    """Put what the registered files hold into runs, if there are any, in one transaction; then delete the files.

    Raises SegmentLost or ValueError where a file is gone or damaged: nothing can be folded without its ids.
    """
    with store.reading() as connection:
        files = registered_files(connection)
    if not files:
        return
    with writing() as connection:
        replace_files(connection, files, ())
        for file in files:
            add_ids(connection, _ids_of(file, sealed_period(connection, file.survey)))
    for file in files:
        place_at(file.place).remove(file.name)


def _ids_of(file: IdFile, sealed: int) -> Mapping[ClosingKey, bytes]:
    from ..segments.id_files import read_ids  # its libraries are not installed everywhere

    pieces: dict[ClosingKey, list[bytes]] = {}
    for period, ids in read_ids(place_at(file.place), file.name, sealed):
        pieces.setdefault((file.survey, period), []).append(ids)
    return {key: merged_ids(some) for key, some in pieces.items()}
