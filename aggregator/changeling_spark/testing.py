"""A standalone Spark cluster on loopback, a master and workers each a process of its own, from the pip package."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from changeling_aggregator.testing.serving import command_of, free_port, offspring

WHY_NOT = "there is no Java here" if shutil.which("java") is None else None
HOST = "127.0.0.1"
START_SECONDS = 180


@dataclass
class SparkCluster:
    """Workers of a core and a GiB each. folder: of its logs and of what workers write."""

    folder: Path
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, workers: int = 2) -> None:
        """Start the master, then the workers, and wait until they know each other."""
        self.folder.mkdir(parents=True, exist_ok=True)
        port = free_port()
        self.master = f"spark://{HOST}:{port}"
        arguments = ["--host", HOST, "--port", str(port), "--webui-port", str(free_port())]
        self._master = self._run("master", "org.apache.spark.deploy.master.Master", *arguments)
        _await_port(port)
        for number in range(workers):
            self.workers.append(self._worker(number))

    def _worker(self, number: int) -> "subprocess.Popen[bytes]":
        arguments = ["--host", HOST, "--webui-port", str(free_port()), "--cores", "1", "--memory", "1g"]
        arguments += ["--work-dir", str(self.folder / f"work{number}"), self.master]
        started = self._run(f"worker{number}", "org.apache.spark.deploy.worker.Worker", *arguments)
        log = self.folder / f"worker{number}.log"
        _await(lambda: b"Successfully registered with master" in log.read_bytes(), f"worker {number} did not register")
        return started

    def python_runs(self, worker: int) -> bool:
        """Tell whether an executor of a worker has started Python, which it does for a fold's first task."""
        return any(b"pyspark.daemon" in command_of(each) for each in offspring(self.workers[worker].pid))

    def kill_worker(self, worker: int) -> None:
        """Kill a worker with SIGKILL, and everything that it had started."""
        self.kill_tree(self.workers[worker].pid)
        self.workers[worker].wait()

    def restart_worker(self, worker: int) -> None:
        """Start another in the place of one that was killed."""
        self.workers[worker] = self._worker(worker)

    @staticmethod
    def kill_tree(pid: int) -> None:
        """Kill a process with SIGKILL, and everything that it had started."""
        for each in [pid, *offspring(pid)]:
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)

    def most_mebibytes(self) -> tuple[float, float]:
        """The most memory that an executor's Java process, and a Python process of one, has had."""
        processes = [each for worker in self.workers for each in offspring(worker.pid)]
        java = {each for each in processes if b"Backend" in command_of(each)}
        python = {each for each in processes if b"pyspark" in command_of(each)} - java  # whose class path names it too
        return max(map(_most_mebibytes, java), default=0.0), max(map(_most_mebibytes, python), default=0.0)

    def close(self) -> None:
        """Stop all of it."""
        for process in [*self.workers, self._master]:
            self.kill_tree(process.pid)
            process.wait()

    def _run(self, name: str, *arguments: str) -> "subprocess.Popen[bytes]":
        import pyspark

        home = Path(pyspark.__file__).parent
        environment = {
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        }
        with (self.folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen([home / "bin" / "spark-class", *arguments], stdout=log, stderr=log, env=environment)


@contextmanager
def cluster(folder: Path) -> Iterator[SparkCluster]:
    """A cluster of two workers for as long as the context lasts."""
    running = SparkCluster(folder)
    try:
        running.start()
        yield running
    finally:
        running.close()


def until(holds: Callable[[], bool]) -> None:
    """Wait for it. Raises TimeoutError where that takes longer than five minutes."""
    _await(holds, "it has not come", 300)


def _await_port(port: int) -> None:
    def open_() -> bool:
        with suppress(OSError), socket.create_connection((HOST, port), 1):
            return True
        return False

    _await(open_, "the master does not listen")


def _await(holds: Callable[[], bool], otherwise: str, seconds: float = START_SECONDS) -> None:
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(otherwise)
        time.sleep(0.02)


def seconds_of(pid: int) -> float:
    """Processor seconds of a process and of its children that have ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def seconds_of_all(pid: int) -> float:
    """Processor seconds of a process, and of everything that it has started, whether it still runs or has ended."""
    return sum(map(seconds_of, [pid, *offspring(pid)]))


def _most_mebibytes(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0)
