"""The ids that the database's runs hold, written to files for executors to read."""

from collections.abc import Iterator, Mapping, Sequence

from changeling_aggregator.fold.ids import merged_ids
from changeling_aggregator.segments import Place
from changeling_aggregator.segments.id_files import write_ids
from changeling_aggregator.store import ClosingKey
from changeling_aggregator.store.id_files import IdFile
from changeling_aggregator.store.runs import ID_BYTES, read_run
from changeling_aggregator.store.schema import runs
from changeling_protocol import SurveyId
from sqlalchemy import Connection, select

_FILE_BYTES = 2**20 * ID_BYTES


def ids_of_runs(
    connection: Connection, place: Place, run: str, sealed: Mapping[SurveyId, int]
) -> dict[IdFile, list[tuple[ClosingKey, int]]]:
    """Write the ids of closings that are not sealed; returns the files, with the runs that each ends with.

    run: names the files. Every run is in the list of the file that has the last of it.
    """
    written: dict[IdFile, list[tuple[ClosingKey, int]]] = {}
    for survey in sealed:
        for ids, ended in _files(connection, survey):
            name = f"{run}-ids-{survey.hex()}-run{len(written)}.parquet"
            size = write_ids(place, name, ids)
            written[IdFile(place.name, name, survey, size)] = ended
    return written


def _files(connection: Connection, survey: SurveyId) -> Iterator[tuple[dict[int, bytes], list[tuple[ClosingKey, int]]]]:
    query = select(runs.c.period, runs.c.number).where(runs.c.survey == survey).distinct()
    ids: dict[int, list[bytes]] = {}
    ended: list[tuple[ClosingKey, int]] = []
    size = 0
    for period, number in sorted(tuple(row) for row in connection.execute(query)):
        for piece in read_run(connection, (survey, period), number):
            if size >= _FILE_BYTES:
                yield _merged(ids), ended
                ids, ended, size = {}, [], 0
            ids.setdefault(period, []).append(piece)
            size += len(piece)
        ended.append(((survey, period), number))
    if ended:
        yield _merged(ids), ended


def _merged(ids: Mapping[int, Sequence[bytes]]) -> dict[int, bytes]:
    """Each period's sorted: what is in several runs is sorted run by run, and in a file is looked for all at once."""
    return {period: merged_ids(pieces) for period, pieces in ids.items()}
