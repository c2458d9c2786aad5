"""Unit costs that the capacity model has beside those of a server on its own store: segments, keys, readers.

Of segments as scale_capacity measures the store: processor seconds of the server's own processes. The object store
that speaks as S3 does runs in this process, and is not counted.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import httpx
from changeling_aggregator.segments import place_at
from changeling_aggregator.store import AtRest, Store
from changeling_aggregator.testing.bucket import small_bucket
from changeling_aggregator.testing.serving import TOKEN, RunningServer
from changeling_protocol.wire import CHANGE, KEYS, survey_path
from changeling_reader import ServerClient
from changeling_simulations.fleet import Load, send

from .scale_capacity import SECONDS, WARMING, Measured, Size, made, modelled, processor_seconds, steps, times_of

IN_A_FOLDER = Size(4_000, 1_000), Size(12_000, 4_000)
IN_A_BUCKET = Size(4_000, 2_000)
ASKED = 1_500
KEYS_MADE = 50


def measure() -> dict[str, float | None]:
    figures: dict[str, float | None] = {}
    with tempfile.TemporaryDirectory() as place, small_bucket() as bucket:
        folder = Path(place)
        load = made(folder, WARMING + IN_A_FOLDER[-1].uploads)
        in_folder = {
            size: [_in_segments(folder, load, size, lambda store: f"{store}/segments")] for size in IN_A_FOLDER
        }
        in_bucket = _in_segments(folder, load, IN_A_BUCKET, lambda _: bucket.place)
        figures |= _asked(folder, load)
    model = modelled(in_folder)
    for stage in SECONDS:
        cost = model[stage]
        more = in_bucket[stage] - cost.of(IN_A_BUCKET.uploads, times_of(stage, IN_A_BUCKET))
        figures |= {f"folder_{stage}_us": 1e6 * cost.each, f"folder_{stage}_of_a_fold_us": 1e6 * cost.start}
        figures[f"object_{stage}_us"] = 1e6 * more / in_bucket["objects"]
    figures["folder_bytes"] = in_folder[IN_A_FOLDER[-1]][0]["lying"] / (WARMING + IN_A_FOLDER[-1].uploads)
    figures["bucket_bytes"] = in_bucket["lying"] / (WARMING + IN_A_BUCKET.uploads)
    figures["uploads_an_object"] = IN_A_BUCKET.uploads / in_bucket["objects"]
    return figures | _keys()


def _in_segments(folder: Path, load: Load, size: Size, place_for: Callable[[str], str]) -> Measured:
    """The costs of a run; `lying`: the bytes at the place in the end."""
    places: list[str] = []
    runs: list[Measured] = []
    lying = 0.0

    def place_of(store: str) -> str:
        places.append(place_for(store))
        return places[-1]

    for _ in steps(folder, load, size, runs, place_of):
        lying = float(sum(each.size for each in place_at(places[-1]).list("")))
    return {**runs[0], "lying": lying}


def _asked(folder: Path, load: Load) -> dict[str, float]:
    """Processor time of the server for a key, for a result that it has made before, and for one that still holds."""
    figures = {}
    store = Store.open(folder / "server.db")
    with store.view() as view:
        (survey,) = view.signed_surveys()
    store.close()
    with RunningServer(folder) as server:
        send(load.requests(64), server.url)
        with ServerClient(server.url, token=TOKEN, timeout=600) as asked:
            asked.fold()
        result = f"{survey_path(survey.hex())}{CHANGE}?after=7&until=8"
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
        with store.transaction() as writing:
            new = _seconds(lambda: [writing.make_key() for _ in range(KEYS_MADE)]) / KEYS_MADE
            read = _seconds(lambda: writing.private_keys()) / KEYS_MADE
            again = _seconds(lambda: writing.encrypt_keys(AtRest(b"b" * 32))) / KEYS_MADE
        store.close()
    return {"key_made_us": 1e6 * new, "key_of_a_batch_us": 1e6 * read, "key_reencrypted_us": 1e6 * again}


def _seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began
