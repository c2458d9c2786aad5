"""Attacks on what a cluster leaves where others can read: every file while it folds, environments, command lines."""

import base64
import os
import threading
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from changeling_aggregator.testing import AFTER
from changeling_spark import runs as running
from changeling_spark import session
from changeling_spark.errors import SparkTrouble
from changeling_spark.folding import SparkFold
from changeling_spark.keys import KeyService
from changeling_spark.session import ClusterSettings

from ..processes import offspring
from .cluster import WHY_NOT, SparkCluster
from .conftest import Pair
from .here import contents, counted_ids

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]


class Watch:
    """Reads all that lies in folders, and of processes what others can see of them, over and over until it ends."""

    def __init__(self, folders: list[Path]) -> None:
        self._folders, self._ended = folders, threading.Event()
        self._known: dict[Path, tuple[int, int]] = {}
        self.seen: dict[str, set[bytes]] = {}
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def end(self) -> None:
        self._ended.set()
        self._thread.join()
        self.look()

    def look(self) -> None:
        for folder in self._folders:
            for inside, _, names in os.walk(folder):  # which passes over what is deleted meanwhile
                for name in names:
                    self._read(Path(inside) / name)
        for pid in offspring(os.getpid()):
            for name in ("environ", "cmdline"):
                self._read(Path(f"/proc/{pid}/{name}"))

    def _read(self, path: Path) -> None:
        with suppress(OSError):
            status = path.stat()
            as_it_is = status.st_mtime_ns, status.st_size
            if self._known.get(path) != as_it_is:
                self._known[path] = as_it_is
                self.seen.setdefault(str(path), set()).add(path.read_bytes())

    def _run(self) -> None:
        while not self._ended.wait(0.05):
            self.look()

    def with_(self, secret: bytes) -> list[str]:
        """Where a secret was seen, in one form or another."""
        forms = (secret, secret.hex().encode(), base64.b64encode(secret)[:20], repr(secret)[2:-1].encode())
        return [path for path, some in self.seen.items() if any(form in each for each in some for form in forms)]


@pytest.mark.usefixtures("many_tasks")
@pytest.mark.parametrize("broadcast", [False, True], ids=["small tasks", "tasks that are broadcast"])
def test_while_a_cluster_folds_no_secret_is_where_others_read(
    pair: Pair,
    spark_cluster: SparkCluster,
    monkeypatch: pytest.MonkeyPatch,
    broadcast: bool,
) -> None:
    """Neither a private key, nor the run's token, nor an id, in any file of the cluster's or the driver's, nor in what
    a process was started with; also where tasks are so large that Spark hands them on in blocks."""
    tokens: list[bytes] = []

    class Told(KeyService):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            tokens.append(self.source.token)

    settings = session._settings
    monkeypatch.setattr(running, "KeyService", Told)
    if broadcast:
        more = {"spark.broadcast.UDFCompressionThreshold": "1"}
        monkeypatch.setattr(session, "_settings", lambda cluster: {**settings(cluster), **more})
    with pair.store.view() as view:
        keys = [key.private_bytes_raw() for key in view.private_keys().values()]
    watch = Watch([spark_cluster.folder])
    try:
        with closing(SparkFold(pair.store, ClusterSettings(spark_cluster.master), pair.place)) as engine:
            engine.await_start()
            assert engine.fold(AFTER, closing=False).requests == 60
            assert contents(pair.store) == pair.expected
    finally:
        watch.end()
    assert any("shuffle" in path for path in watch.seen)
    assert any(path.endswith("environ") for path in watch.seen)
    assert len(tokens) == 1
    ids = counted_ids(pair.store)
    assert len(ids) > 20
    for secret in (*keys, *tokens, *ids):
        assert watch.with_(secret) == []


def test_in_a_session_with_other_settings_nothing_is_folded() -> None:
    """One that runs in this process already, and encrypts nothing: Spark would give it to whoever asks for one."""
    if WHY_NOT is not None:
        pytest.skip(WHY_NOT)
    from pyspark.sql import SparkSession

    plain = {"spark.ui.enabled": "false", "spark.io.encryption.enabled": "false"}  # a Java process keeps what it had
    theirs = SparkSession.builder.master("local[1]").config(map=plain).getOrCreate()
    try:
        with pytest.raises(SparkTrouble, match="does not encrypt"), session.session(ClusterSettings("local[1]")):
            pass
        assert theirs.range(3).count() == 3
    finally:
        theirs.stop()
