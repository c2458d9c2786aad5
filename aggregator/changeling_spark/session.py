"""The Spark session of a fold: what bounds an executor's memory, and how answers and keys stay off disks.

Blocks that Spark writes to disk, as a shuffle's and what does not fit into memory, hold opened reports: Spark encrypts
them, under a key of the application. Unless it is asked for, nothing is logged, and no history of the application is
written.

What a task is made of may be written to disk as well. So a task holds no private key but a token of its run, of 32
random bytes, and the process that runs it asks the driver over the network: it shows the token by a code over an
ephemeral public key, and gets the keys sealed to that one. Neither a disk nor a record of the network then opens an
upload: the ephemeral half lives in the process alone, and a token is worth nothing once its run has ended.
"""

import hmac
import os
import secrets
import shutil
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from threading import Event, Lock, Thread
from time import monotonic
from typing import TYPE_CHECKING

import msgpack
from changeling_aggregator import AggregatorError, FoldOver
from changeling_aggregator.fold import EngineOptions
from changeling_protocol import hpke_seal, hpke_unseal
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OURS = ("changeling_aggregator.errors.", "changeling_spark.session.")
_FIXED = {
    "spark.io.encryption.enabled": "true",
    "spark.redaction.regex": "(?i)secret|password|token|key",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "32",
    "spark.python.worker.reuse": "true",
    "spark.python.worker.faulthandler.enabled": "false",
}
"""Settings that nobody changes: they encrypt what lies on disks, keep secrets out of pages, and bound memory."""
_DEATH_SECONDS = 1.0
"""How long after its last word a Java process may still be there."""
NEEDS = 'the fold on Spark needs its library: pip install "changeling[spark]"'
NEEDS_JAVA = "the fold on Spark needs Java 17: install a Java runtime, or set JAVA_HOME"


class SparkTrouble(AggregatorError):
    """Spark, or Java, is missing or has failed; the log is as it was before, and can be folded again."""


def missing() -> str | None:
    """The name of what a driver lacks here, and how to get it; None where nothing is missing."""
    from importlib.util import find_spec

    if any(find_spec(each) is None for each in ("pyspark", "pyarrow")):
        return NEEDS
    home = os.environ.get("JAVA_HOME")
    if shutil.which(os.path.join(home, "bin", "java") if home else "java") is None:
        return NEEDS_JAVA
    return None


@contextmanager
def session(cluster: EngineOptions) -> "Iterator[SparkSession]":
    """A session on the cluster for as long as the context lasts. Raises SparkTrouble."""
    lacking = missing()
    if lacking is not None:
        raise SparkTrouble(lacking)
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.master(cluster.master).appName("changeling fold").config(map=spark_settings(cluster))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Spark's own, as of a native library that is not there
            spark = builder.getOrCreate()
    except (Py4JError, PySparkException, OSError, RuntimeError) as error:
        raise SparkTrouble(f"Spark at {cluster.master} cannot be used: {first_line(error)}") from None
    if spark.sparkContext.getConf().get("spark.io.encryption.enabled") != "true":
        raise SparkTrouble("Spark does not encrypt what it writes: a session that is not ours runs in this process")
    try:
        spark.sparkContext.setLogLevel(str(spark_settings(cluster)["spark.log.level"]))
        yield spark
    finally:
        with suppress(Py4JError, OSError):  # its Java process may have died
            spark.stop()


def see_alive(spark: "SparkSession", seconds: float = 0.0) -> None:
    """Raises FoldOver where the session's Java process has died, or dies within so many seconds."""
    java = getattr(spark.sparkContext._gateway, "proc", None)
    if isinstance(java, subprocess.Popen):
        with suppress(subprocess.TimeoutExpired):
            java.wait(seconds)
            raise FoldOver("Spark's Java process beside this one has died: run the command again, nothing is lost")


def end_java() -> None:
    """Kill the Java process of this one, if it has one: a session that is being started ends at once."""
    from pyspark import SparkContext

    java = getattr(SparkContext._gateway, "proc", None)
    if isinstance(java, subprocess.Popen):
        java.kill()


def trouble_of(spark: "SparkSession", error: BaseException) -> AggregatorError:
    """The error to raise where Spark has raised one: FoldOver where the session's Java process has died."""
    try:
        see_alive(spark, _DEATH_SECONDS)
    except FoldOver as over:
        return over
    return SparkTrouble(f"the fold on Spark has failed, and changed nothing: {first_line(error)}")


def is_stopped(spark: "SparkSession") -> bool:
    """Tell whether Spark has ended the session by itself, as where its master is gone for good."""
    from py4j.protocol import Py4JError

    try:
        context = spark.sparkContext._jsc
        return context is None or bool(context.sc().isStopped())
    except (Py4JError, OSError):
        return True


def first_line(error: BaseException) -> str:
    """The words of an error of Spark's: the sentence of ours that a task ended with, or its first line; no trace."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = (line.removeprefix(module) for line in lines for module in _OURS if line.startswith(module))
    return next(ours, lines[0] if lines else type(error).__name__)[:300]


def spark_settings(cluster: EngineOptions) -> dict[str, bool | float | int | str | None]:
    """All settings of the session, by Spark's names.

    Raises ValueError where one that was given is none of Spark's, or one that the fold depends on.
    """
    given: dict[str, str] = {}
    for setting in cluster.conf:
        name, equals, given[name] = setting.partition("=")
        if not (equals and name.startswith("spark.")):
            raise ValueError(f"a setting of Spark is spark.NAME=VALUE, got {name!r}")
        if name in _FIXED:
            raise ValueError(f"{name} is fixed: the fold, or what keeps its data secret, depends on it")
    settings: dict[str, bool | float | int | str | None] = {
        "spark.executor.memory": cluster.executor_memory,
        "spark.executorEnv.OPENBLAS_NUM_THREADS": "1",
        "spark.executorEnv.POLARS_MAX_THREADS": "1",
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.eventLog.enabled": "false",
        "spark.log.level": "OFF",
    }
    return settings | given | _FIXED


_INFO = b"changeling keys of a run"
_PUBLIC_BYTES, _CODE_BYTES, _TOKEN_BYTES = 32, 32, 32
_MOST_WAIT_SECONDS = 30.0
"""How long either side waits for all that the other says."""
_MOST_BYTES = 2**22
_MOST_AT_ONCE = 200
"""With one more the connection that has waited longest is ended. Executors do not wait: the token is answered at
once."""


class KeysWithheld(AggregatorError):
    """An executor could not get the run's private keys from the driver; the task is tried again elsewhere."""


@dataclass(frozen=True, slots=True)
class KeySource:
    """Where a run's keys are to be had. host, port: the driver's. token: 32 bytes, the run's own."""

    host: str
    port: int
    token: bytes = field(repr=False)


class KeyService:
    """Gives these private keys, by id, to whoever shows the token, until it is closed.

    host: the driver's address, as executors know it. bind: the address to listen on.
    """

    def __init__(self, keys: Mapping[bytes, X25519PrivateKey], host: str, bind: str) -> None:
        raw = {id_: key.private_bytes_raw() for id_, key in keys.items()}
        self._packed: bytes = msgpack.packb(raw)
        self._listening = socket.create_server((bind, 0))
        self.source = KeySource(host, self._listening.getsockname()[1], secrets.token_bytes(_TOKEN_BYTES))
        self._changing, self._ended = Lock(), Event()
        self._asking: list[socket.socket] = []
        self._thread = Thread(target=self._serve, name="keys", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Give no more keys, nor to those who are asking."""
        with self._changing:
            self._ended.set()
            for each in [self._listening, *self._asking]:
                _end(each)
        self._listening.close()
        self._thread.join()

    def _serve(self) -> None:
        while not self._ended.is_set():
            try:
                connection, _ = self._listening.accept()
            except OSError:  # it has ended, or one who asked has gone, or the system gives no more files just now
                self._ended.wait(0.05)
                continue
            with self._changing:
                if self._ended.is_set():
                    connection.close()
                    return
                if len(self._asking) == _MOST_AT_ONCE:
                    _end(self._asking.pop(0))
                self._asking.append(connection)
            Thread(target=self._give, args=(connection,), daemon=True).start()

    def _give(self, connection: socket.socket) -> None:
        try:
            with suppress(OSError, EOFError, ValueError):
                self._answer(connection)
        finally:
            with self._changing:
                if connection in self._asking:
                    self._asking.remove(connection)
                connection.close()

    def _answer(self, connection: socket.socket) -> None:
        end = monotonic() + _MOST_WAIT_SECONDS
        asked = _received(connection, _PUBLIC_BYTES + _CODE_BYTES, end)
        public, code = asked[:_PUBLIC_BYTES], asked[_PUBLIC_BYTES:]
        if not self._ended.is_set() and hmac.compare_digest(code, _code(self.source.token, b"asked", public)):
            recipient = X25519PublicKey.from_public_bytes(public)
            sealed = hpke_seal(self._packed, recipient, _INFO, X25519PrivateKey.generate())
            given = _code(self.source.token, b"given", public + sealed)
            connection.sendall(len(sealed).to_bytes(4) + given + sealed)


@lru_cache(maxsize=1)
def keys_from(source: KeySource) -> dict[bytes, X25519PrivateKey]:
    """The private keys of a run, by id; asked for once in a process.

    Raises KeysWithheld where there are none.
    """
    ephemeral = X25519PrivateKey.generate()
    public = ephemeral.public_key().public_bytes_raw()
    end = monotonic() + _MOST_WAIT_SECONDS
    try:
        with socket.create_connection((source.host, source.port), _MOST_WAIT_SECONDS) as connection:
            connection.sendall(public + _code(source.token, b"asked", public))
            head = _received(connection, 4 + _CODE_BYTES, end)
            size = int.from_bytes(head[:4])
            if size > _MOST_BYTES:
                raise ValueError("more than keys take")
            sealed = _received(connection, size, end)
        if not hmac.compare_digest(head[4:], _code(source.token, b"given", public + sealed)):
            raise ValueError("another code than the run's")
    except (OSError, EOFError, ValueError) as error:
        raise KeysWithheld(f"the driver at {source.host} gave no keys: {error}") from None
    raw = msgpack.unpackb(hpke_unseal(sealed, ephemeral, _INFO))
    return {id_: X25519PrivateKey.from_private_bytes(key) for id_, key in raw.items()}


def _code(token: bytes, purpose: bytes, said: bytes) -> bytes:
    return hmac.digest(token, purpose + said, "sha256")


def _end(connection: socket.socket) -> None:
    """Whoever waits for something of it hears at once that nothing comes."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _received(connection: socket.socket, size: int, end: float) -> bytes:
    """As many bytes as asked for. end: by the monotonic clock, when nothing more is waited for."""
    received = b""
    while len(received) < size:
        connection.settimeout(max(end - monotonic(), 0.001))
        some = connection.recv(size - len(received))
        if not some:
            raise EOFError("it ended the connection")
        received += some
    return received
