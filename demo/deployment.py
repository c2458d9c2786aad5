"""A server of its own on loopback, set up with the commands an operator would type, under a clock that we move."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from changeling_aggregator.cli.access import read_public_key
from changeling_protocol import Survey
from changeling_protocol.wire import CLOCK, FOLD, JSON, SERIES, survey_path
from changeling_reader import ServerClient
from changeling_statistics import read_survey

COMMAND = (sys.executable, "-m", "changeling_commands")


@dataclass(frozen=True, slots=True)
class Deployment:
    """A running server, the survey it publishes, and what its clients pin."""

    url: str
    survey: Survey
    authority: bytes
    admin: ServerClient

    def move_clock(self, time: float) -> None:
        """Sets the server's clock, in Unix seconds."""
        body = json.dumps({"time": time}).encode()
        self.admin.request("PUT", CLOCK, body=body, headers={"content-type": JSON})

    def fold(self) -> dict[str, Any]:
        """Fold now; what was folded."""
        folded: dict[str, Any] = self.admin.request("POST", FOLD).json()
        return folded

    def seal(self) -> None:
        """Lets the grace of the last period pass, and folds: from then on nothing that is published changes."""
        survey = self.survey
        self.fold()
        self.move_clock(survey.calendar.time(survey.calendar.periods) + survey.grace + 1)
        self.fold()

    def series(self) -> list[dict[str, Any]]:
        """The published histograms of all periods."""
        query = (("until", self.survey.calendar.periods), ("covariance", "true"), ("confidence", "0.95"))
        published: list[dict[str, Any]] = self.admin.json(survey_path(self.survey.id.hex()) + SERIES, query)["series"]
        return published


@contextmanager
def deployed(folder: Path, survey_file: Path) -> Iterator[Deployment]:
    """Authority and sealing key made, the survey signed and published; the server stopped at the end."""
    changeling = _Commands(folder, dict(os.environ))
    scopes = [word for scope in ("survey:write", "fold", "read") for word in ("--scope", scope)]
    changeling("token", "new", "--store", "server.db", "--name", "demo", *scopes, "-o", "operator.token")
    token = (folder / "operator.token").read_text().strip()
    environment = {**os.environ, "CHANGELING_TOKEN": token}
    changeling = _Commands(folder, environment)
    changeling("authority", "new", "-o", "authority")
    private, public = (folder / "authority" / f"authority.{suffix}" for suffix in ("key", "pub"))
    with _serving(folder, environment, public) as url:
        changeling("keys", "new", "--store", "server.db", "-o", "key.request")
        dates = ("--begins", "1970-01-02", "--expires", "2100-01-01")
        changeling("keys", "sign", "key.request", "--key", str(private), *dates, "-o", "key.signed")
        changeling("keys", "publish", "key.signed", "--server", url)
        changeling("survey", "sign", str(survey_file), "--key", str(private), "-o", "survey.signed")
        changeling("survey", "publish", "survey.signed", "--server", url)
        survey = read_survey(folder / "survey.signed")
        with ServerClient(url, token=token, timeout=60) as admin:
            yield Deployment(url, survey, read_public_key(public), admin)


@dataclass(frozen=True, slots=True)
class _Commands:
    folder: Path
    environment: dict[str, str]

    def __call__(self, *arguments: str) -> None:
        done = subprocess.run(  # noqa: S603
            [*COMMAND, *arguments], cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"changeling {' '.join(arguments)}: {done.stderr.strip()}")


@contextmanager
def _serving(folder: Path, environment: dict[str, str], authority: Path) -> Iterator[str]:
    serve = ("serve", "--store", "server.db", "--authority", str(authority), "--port", "0", "--movable-clock")
    with (
        (folder / "server.log").open("w") as log,
        subprocess.Popen(  # noqa: S603
            [*COMMAND, *serve], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=log, text=True
        ) as server,
    ):
        try:
            yield _url_of(server, folder / "server.log")
        finally:
            server.terminate()


def _url_of(server: "subprocess.Popen[str]", log: Path) -> str:
    """The address that the server prints once it listens."""
    line = server.stdout.readline() if server.stdout else ""
    if "http" not in line:
        raise RuntimeError(f"the server did not start: {log.read_text().strip() or line.strip()}")
    return line[line.index("http") :].strip()
