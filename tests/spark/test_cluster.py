"""The fold on a real cluster: what it comes to, whatever is killed, and what others can read of it meanwhile."""

import base64
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import chain
from pathlib import Path
from typing import Any

import pyspark
import pytest
from changeling_aggregator.fold import EngineOptions, FoldReport, fold
from changeling_aggregator.store import Store
from changeling_aggregator.testing import AFTER, counted_rows, prepared
from changeling_aggregator.testing.serving import command_of, offspring
from changeling_spark import SparkTrouble, runs, session
from changeling_spark.runs import SparkFold
from changeling_spark.session import KeyService
from changeling_spark.testing import WHY_NOT, SparkCluster, until

from tests.command_line import changeling as run

from ..docs.blocks import blocks
from .here import Case, contents, known_ids

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.timeout(600),
    pytest.mark.skipif(WHY_NOT is not None, reason=f"{WHY_NOT}"),
]


@pytest.mark.usefixtures("spark_cluster")
def test_in_a_session_with_other_settings_nothing_is_folded() -> None:
    """One that runs in this process already, and encrypts nothing: Spark would give it to whoever asks for one."""
    from pyspark.sql import SparkSession

    plain = {"spark.ui.enabled": "false", "spark.io.encryption.enabled": "false"}  # a Java process keeps what it had
    theirs = SparkSession.builder.master("local[1]").config(map=plain).getOrCreate()
    try:
        with (
            pytest.raises(SparkTrouble, match="does not encrypt"),
            session.session(EngineOptions("local[1]", "/nowhere")),
        ):
            pass
        assert theirs.range(3).count() == 3
    finally:
        theirs.stop()


def test_spark_submit_runs_the_application_of_the_page(case: Case, tmp_path: Path) -> None:
    """With settings of the operator's behind it: an event log is written where it was asked for."""
    (application,) = (block for block in blocks("docs/spark.md", "python") if "sys.exit(main())" in block)
    (tmp_path / "fold.py").write_text(application)
    events = tmp_path / "events"
    events.mkdir()
    case.append()
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    command = [submit, "--master", "local[2]", tmp_path / "fold.py", *case.command("local[2]")[3:]]
    command += ["--conf", "spark.eventLog.enabled=true", "--conf", f"spark.eventLog.dir={events.as_uri()}"]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run([*map(str, command)], env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    assert f"{fold(case.theirs, AFTER, closing=False).envelopes} envelopes, " in done.stdout
    assert any(path.is_file() and path.stat().st_size for path in events.rglob("*"))
    assert contents(case.store)["tallies"] == case.expected()["tallies"]


def test_the_log_is_read_as_a_table_as_its_page_says(
    case: Case,
    engine: SparkFold,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of a store whose log lies in segments: the files that the command lists, through the view of the example."""
    engine.turn_to(case.store)
    engine.await_start()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "segments").mkdir()
    with closing(Store.open("server.db")) as store:
        log, streams = prepared(store, place=str(tmp_path / "segments"))
        log.append_to(streams)
    assert run(["segments", "list", "--store", "server.db"]) == 0
    listed = [line.partition(" ")[0] for line in capsys.readouterr().out.splitlines()]
    (tmp_path / "segments.txt").write_text("\n".join(listed))
    (example,) = blocks("docs/segments.md", "python")
    names: dict[str, Any] = {}
    exec(example, names)  # in the session that runs here
    assert "bytes" in capsys.readouterr().out
    assert names["spark"].sql("SELECT count(*) FROM log").head()[0] == len(log.requests)


@pytest.mark.usefixtures("many_tasks")
def test_a_worker_killed_in_mid_fold_changes_nothing_of_what_it_comes_to(
    case: Case, spark_cluster: SparkCluster, engine: SparkFold
) -> None:
    """SIGKILL to it and its executor, as soon as that one's Python runs, which it does for a session's first task; the
    other does what is left."""
    reports: list[FoldReport] = []
    engine.turn_to(case.store)
    engine.await_start()
    case.append()
    folding = threading.Thread(target=lambda: reports.append(engine.fold(AFTER, closing=False)))
    folding.start()
    until(lambda: spark_cluster.python_runs(0))
    spark_cluster.kill_worker(0)
    assert folding.is_alive()
    folding.join()
    spark_cluster.restart_worker(0)
    assert [each.requests for each in reports] == [60]
    case.agree()


class Watch(threading.Thread):
    """Reads all that lies in a folder, and of processes what others can see of them, over and over until it ends."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder, self._ended = folder, threading.Event()
        self.seen: dict[tuple[str, int, int], bytes] = {}
        self.start()

    def end(self) -> None:
        self._ended.set()
        self.join()

    def run(self) -> None:
        while not self._ended.wait(0.05):
            self._look()
        self._look()

    def _look(self) -> None:
        lying = (Path(inside, name) for inside, _, names in os.walk(self._folder) for name in names)
        shown = (Path(f"/proc/{pid}/{name}") for pid in offspring(os.getpid()) for name in ("environ", "cmdline"))
        for path in chain(lying, shown):
            with suppress(OSError):  # it is deleted meanwhile
                status = path.stat()
                as_it_is = str(path), status.st_mtime_ns, status.st_size
                if as_it_is not in self.seen:
                    self.seen[as_it_is] = path.read_bytes()

    def with_(self, secret: bytes) -> list[str]:
        """Where a secret was seen, in one form or another."""
        forms = (secret, secret.hex().encode(), base64.b64encode(secret)[:20], repr(secret)[2:-1].encode())
        return [path for (path, *_), content in self.seen.items() if any(form in content for form in forms)]


@pytest.mark.usefixtures("many_tasks")
def test_a_cluster_folds_as_this_machine_does_and_keeps_no_secret(
    case: Case, spark_cluster: SparkCluster, engine: SparkFold, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Byte by byte. Neither a private key, nor a run's token, nor an id is ever in a file of the cluster's or the
    driver's, a log, or what a process was started with; also where Spark hands tasks on in blocks, as large ones."""
    from pyspark import SparkContext

    tokens, handed_on = list[bytes](), list[object]()

    class Told(KeyService):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            tokens.append(self.source.token)

    broadcast = SparkContext.broadcast
    monkeypatch.setattr(SparkContext, "broadcast", lambda *each: handed_on.append(each) or broadcast(*each))
    monkeypatch.setattr(runs, "KeyService", Told)
    with case.store.view() as view:
        keys = [key.private_bytes_raw() for key in view.private_keys().values()]
    watch = Watch(spark_cluster.folder)
    try:
        engine.turn_to(case.store)
        engine.await_start()
        case.append(30)
        assert engine.fold(AFTER, closing=False).requests == 30
        assert not handed_on
        assert engine._spark is not None
        engine._spark.sparkContext._jsc.sc().conf().set("spark.broadcast.UDFCompressionThreshold", "1")
        case.append(30)
        assert engine.fold(AFTER, closing=False).requests == 30
        assert handed_on
        case.agree()
    finally:
        watch.end()
    for part in ("shuffle", "stderr", "environ"):
        assert any(part in path for path, *_ in watch.seen), part
    ids = [id_ for some in known_ids(case.store).values() for id_ in some if len({*id_}) > 4]
    assert (len(tokens), len(ids) > 20) == (2, True)
    for secret in (*keys, *tokens, *ids):
        assert watch.with_(secret) == []


def test_a_session_that_spark_has_ended_and_a_killed_driver_change_nothing_and_another_folds(
    case: Case, spark_cluster: SparkCluster, engine: SparkFold
) -> None:
    """As where executors fail again and again: the fold in hand says so. The command as well, killed with SIGKILL. The
    next session comes to the same, and leaves no file that does not count."""
    engine.turn_to(case.store)
    engine.await_start()
    case.append()
    before = contents(case.store)
    assert engine._spark is not None
    engine._spark.sparkContext._jsc.sc().stop()  # which gives the cluster's cores back
    with pytest.raises(SparkTrouble, match="has failed, and changed nothing"):
        engine.fold(AFTER, closing=False)
    assert contents(case.store) == before
    command = case.command(spark_cluster.master)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as killed:
        until(lambda: killed.poll() is not None or any(map(spark_cluster.python_runs, range(2))))
        assert killed.poll() is None, killed.stderr and killed.stderr.read()
        spark_cluster.kill_tree(killed.pid)
    assert contents(case.store) == before
    assert engine.fold(AFTER, closing=False).requests == 60
    case.agree()
    assert not [*case.place.path.iterdir()]  # what the killed one had written has gone


# `changeling fold --follow` in a Spark of this machine


class Following:
    """The command on a store, as a process."""

    def __init__(self, case: Case, folder: Path, master: str = "local[1]") -> None:
        environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_DIRS": str(folder)}
        environment["JAVA_TOOL_OPTIONS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
        self._case = case
        self._errors = (folder / "errors").open("w+b")
        self.process = subprocess.Popen(
            [*case.command(master), "--follow"], stdout=subprocess.PIPE, stderr=self._errors, env=environment
        )

    def counts_all(self) -> bool:
        assert self.process.poll() is None, self.said()
        with self._case.store.view() as view:
            return view.log_state().unfolded == 0

    def said(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode()

    def java(self) -> list[int]:
        """The process id of its Java, once that runs; then of those that it has just forked, which look like it."""
        return [each for each in offspring(self.process.pid) if b"pyspark-shell" in command_of(each)]

    def close(self) -> None:
        SparkCluster.kill_tree(self.process.pid)
        self.process.communicate()
        self._errors.close()


@pytest.fixture
def following(case: Case, tmp_path: Path) -> Iterator[Following]:
    with closing(Following(case, tmp_path)) as started:
        yield started


def test_what_arrives_while_it_runs_counts_and_it_ends_when_told(case: Case, following: Following) -> None:
    """In one session: twenty requests at a time, each once the ones before are counted. Told to end in mid fold it ends
    with 0, and all of that fold is left for the next, or none; no file is left but those with ids that count."""
    for _ in range(2):
        case.append(20)
        until(following.counts_all)
    before = counted_rows(case.store)
    (java,) = following.java()
    case.append()
    os.kill(following.process.pid, signal.SIGTERM)
    assert following.process.wait(300) == 0, following.said()
    until(lambda: not Path(f"/proc/{java}").exists())
    whole = counted_rows(case.store).items() <= case.expected().items()
    assert whole or counted_rows(case.store) == before
    assert case.named() <= case.lying()
    assert case.lying() == case.named() or not whole


def test_when_its_java_process_dies_it_ends_with_a_sentence(case: Case, following: Following) -> None:
    """And with a code that is not 0, so that what watches over it starts it again. What it had counted stays."""
    case.append(6)
    until(following.counts_all)
    before = counted_rows(case.store)
    os.kill(following.java()[0], signal.SIGKILL)
    assert following.process.wait(300) == 1, following.said()
    assert counted_rows(case.store) == before
    assert "Spark's Java process beside this one has died: run the command again" in " ".join(following.said().split())


def test_told_to_end_while_it_waits_for_a_master_it_ends(case: Case, tmp_path: Path) -> None:
    """One that does not answer, for which Spark would wait a minute."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        master = f"spark://127.0.0.1:{silent.getsockname()[1]}"
        with closing(Following(case, tmp_path, master)) as started:
            until(lambda: bool(started.java()))
            os.kill(started.process.pid, signal.SIGTERM)
            assert started.process.wait(55) == 0, started.said()
