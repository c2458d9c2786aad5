"""Unit costs that the capacity model has beside those of a server on its own store: segments, keys, readers.

Of segments as scale_capacity measures the store: processor seconds of the server's own processes. The object store
that speaks as S3 does runs in this process, and is not counted.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx
from changeling_aggregator.segments import place_at
from changeling_aggregator.store import AtRest, Store
from changeling_aggregator.store.sealing_keys import encrypt_again, make_key, private_keys
from changeling_aggregator.store.surveys import published_surveys
from changeling_protocol.wire import survey_path
from changeling_protocol.wire.paths import HISTOGRAM, KEYS
from changeling_simulations.fleet.sealing import Load
from changeling_simulations.fleet.sending import send
from changeling_simulations.fleet.server import Server

from tests.aggregator.buckets import new_bucket, object_store
from tests.aggregator.serving import TOKEN, ServerProcess

from .scale_capacity import SECONDS, WARMING, Measured, Size, made, modelled, processor_seconds, steps

IN_A_FOLDER, IN_A_BUCKET = (Size(4_000, 1_000), Size(12_000, 4_000)), (Size(2_000, 1_000), Size(6_000, 3_000))
"""A fold of much fewer opens them itself."""
ASKED = 1_500
KEYS_MADE = 50


def measure() -> dict[str, float | None]:
    figures: dict[str, float | None] = {}
    with tempfile.TemporaryDirectory() as place, object_store() as endpoint:
        folder = Path(place)
        load = made(folder, WARMING + max(size.uploads for size in (*IN_A_FOLDER, *IN_A_BUCKET)))
        figures |= _segments(folder, load, "folder", IN_A_FOLDER, lambda of_store: f"{of_store}/segments")
        figures |= _segments(folder, load, "bucket", IN_A_BUCKET, lambda _: new_bucket(endpoint))
        figures |= _asked(folder, load)
    return figures | _keys()


def _segments(
    folder: Path, load: Load, name: str, sizes: Sequence[Size], place_for: Callable[[str], str]
) -> dict[str, float]:
    """What one more upload, and one more fold, costs at each stage, and how many bytes the place then has of it."""
    runs: dict[Size, list[Measured]] = {size: [] for size in sizes}
    lying: list[float] = []

    def place_of(store: str) -> str:
        places.append(place_for(store))
        return places[-1]

    places: list[str] = []
    for size, into in runs.items():
        for _ in steps(folder, load, size, into, place_of):
            lying.append(float(sum(each.size for each in place_at(places[-1]).kept(""))))
    model = modelled(runs)
    figures = {f"{name}_{stage}_us": 1e6 * getattr(model, stage).each for stage in SECONDS}
    figures |= {f"{name}_{stage}_of_a_fold_us": 1e6 * getattr(model, stage).start for stage in SECONDS}
    return figures | {f"{name}_bytes": lying[-1] / (WARMING + sizes[-1].uploads)}


def _asked(folder: Path, load: Load) -> dict[str, float]:
    """Processor time of the server for a key, for a result that it has made before, and for one that still holds."""
    figures = {}
    store = Store.open(folder / "server.db")
    with store.reading() as connection:
        (survey,) = published_surveys(connection)
    store.close()
    with ServerProcess(folder) as server:
        send(load.requests(64), server.url)
        with Server(server.url, TOKEN) as asked:
            asked.fold()
        result = f"{survey_path(survey.hex())}{HISTOGRAM}?period=8"
        tag = server.http.get(result).raise_for_status().headers["etag"]
        for name, path, headers in (
            ("key", KEYS, {}),
            ("result", result, {}),
            ("unchanged_result", result, {"if-none-match": tag}),
        ):
            answer = server.http.get(path, headers=headers)
            before = processor_seconds(server.process.pid)
            for _ in range(ASKED):
                server.http.get(path, headers=headers)
            figures[f"{name}_us"] = 1e6 * (processor_seconds(server.process.pid) - before) / ASKED
            figures[f"{name}_bytes"] = float(_bytes_of(answer))
    return figures


def _bytes_of(answer: httpx.Response) -> int:
    return len(answer.content) + sum(len(name) + len(value) + 4 for name, value in answer.headers.raw)


def _keys() -> dict[str, float]:
    """Per key: made; read for a batch of the fold; and put under another store key."""
    with tempfile.TemporaryDirectory() as place:
        store = Store.open(Path(place) / "server.db", AtRest(b"a" * 32))
        with store.writing() as connection:
            new = _seconds(lambda: [make_key(connection, store.at_rest) for _ in range(KEYS_MADE)]) / KEYS_MADE
            read = _seconds(lambda: private_keys(connection, store.at_rest)) / KEYS_MADE
            again = _seconds(lambda: encrypt_again(connection, store.at_rest, AtRest(b"b" * 32))) / KEYS_MADE
        store.close()
    return {"key_made_us": 1e6 * new, "key_of_a_batch_us": 1e6 * read, "key_reencrypted_us": 1e6 * again}


def _seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began
