"""`changeling dev`: what an app developer meets first. The device is the very script that it prints, or a fleet."""

import os
import re
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from itertools import pairwise

import httpx
import pytest
from changeling_client.testing import make_survey
from changeling_commands import dev as development
from changeling_protocol import AtMost, BadSignature, Breakdown, Question
from changeling_statistics import write_survey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.command_line import changeling as main
from tests.command_line import invoked

from ..protocol.examples import AUTHORITY, survey

SHORT = (
    "import sys; from changeling_commands import dev as d; d.PERIOD_SECONDS, d.FLEET_PAST = 2, 8; "
    "from changeling_commands import main; sys.exit(main())"
)
"""The command with periods of two seconds, so that a test need not wait for ten; a fleet has lived through eight."""
ALONE = r" +\d+ +1 of 1 +1\.00 ± 0\.00 +0\.00 ± 0\.00$"
"""The one device there is was heard, and holds the first of two answers."""
DEADLINE_SECONDS = 150
DEVICES = 12


class Running:
    """`changeling dev` in a process of its own, and what it has printed so far."""

    def __init__(self, folder, *words):
        self.folder, self.lines = folder, []
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-c", SHORT, "dev", *words],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(folder)},
            cwd=folder,
        )

    def wait_for(self, pattern):
        """Until it prints a line like this."""
        while not (self.lines and re.match(pattern, self.lines[-1])):
            line = self.process.stdout.readline()
            assert line, f"{pattern!r} was not printed: {self.lines}"
            self.lines.append(line.rstrip("\n"))

    @property
    def script(self):
        """The device that it prints."""
        end = next(at for at, line in enumerate(self.lines) if line.startswith("A period closes"))
        return "\n".join(line[4:] for line in self.lines[:end] if line.startswith("    "))

    @property
    def told(self):
        """Its URL, its authority and its survey, as that script has them."""
        return re.search(r'server="(.+?)".*fromhex\("(.+?)"\).*join\("(.+?)"\)', self.script, re.DOTALL).groups()

    @contextmanager
    def device(self):
        """The script, running in the folder."""
        command = [sys.executable, "-u", "-c", self.script]
        with subprocess.Popen(
            command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def stop(self):
        """End it as a process manager does; returns the last line."""
        self.process.terminate()
        with self.process:
            self.lines += self.process.stdout.read().splitlines()
        assert self.process.returncode == 0
        return self.lines[-1]


@contextmanager
def running(folder, *words):
    dev = Running(folder, *words)
    try:
        yield dev
    finally:
        if dev.process.poll() is None:
            dev.stop()


@pytest.mark.heavy
def test_what_is_kept_goes_on_with_the_same_survey_or_another_of_the_same_authority(tmp_path):
    """One device is seen alone, and before it comes, that nobody was heard. Its own store does not break: it joins the
    other survey beside the first."""
    told = []
    for answers in ("yes,no", "yes, no", "yes,never"):
        with running(tmp_path, "--store", "kept", "--answers", answers) as dev:
            dev.wait_for("period +heard")
            assert any("FOR DEVELOPMENT ONLY" in line for line in dev.lines)
            told.append(dev.told)
            if len(told) == 1:
                dev.wait_for(r" +\d+ +no estimate: no device was heard of it, or of a period before$")
            else:
                with dev.device() as device:
                    dev.wait_for(ALONE)
                    assert device.stdout.readline().startswith("Recorded.")
                    assert device.stdout.readline().startswith("Flushed(sent=")
            assert dev.stop() == "stopped; everything is kept in kept"
    first, again, other = told
    assert again == first
    assert other[:2] == first[:2]
    assert other[2] != first[2]
    assert (tmp_path / "kept" / "authority.key").stat().st_mode & 0o777 == 0o600


@pytest.mark.heavy
def test_what_another_survey_asks_is_asked_in_development(tmp_path):
    """All of its questions, a number among them, by its breakdowns, and without its constraint; the script answers each
    of them, and says nothing against itself."""
    questions = (
        Question("drink", "What do you drink?", ("tea", "coffee"), AtMost(1)),
        Question.of_number("minutes", "How long did you wait?", [0, 30], AtMost(1), "min"),
    )
    own = make_survey(question=questions, breakdowns=(Breakdown("platform", ("ios", "android")),))
    write_survey(tmp_path / "own.json", own)
    with running(tmp_path, "--like", "own.json") as dev:
        dev.wait_for("period +heard +0 min +30 min  minutes$")
        with dev.device() as device:
            dev.wait_for(ALONE[:-1] + "  drink$")
            dev.wait_for(ALONE[:-1] + "  minutes$")
            assert device.stdout.readline().startswith("Recorded.")
            assert device.stdout.readline().startswith("Recorded.")
            assert device.stdout.readline().startswith("Flushed(sent=")


@pytest.mark.heavy
def test_a_fleet_has_a_past_goes_on_and_is_thrown_away(tmp_path):
    """Every closed period is estimated, with bands, from all devices; then live ones come. At the end nothing stays."""
    with running(tmp_path, "--fleet", f"{DEVICES}", "--answers", "yes,no") as dev:
        dev.wait_for("Look at ")
        assert any("a toy: epsilon" in line for line in dev.lines)
        assert any(line.startswith("    entry = client.join(") for line in dev.lines)
        url = dev.lines[-1].split()[2].rstrip("/")
        (listed,) = httpx.get(f"{url}/v1/surveys", timeout=100).json()["surveys"]
        assert listed["public"]
        heard, until = [], time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < until and not (len(heard) > 10 and heard[9]["heard"] == DEVICES):
            time.sleep(0.5)
            answer = httpx.get(f"{url}/v1/surveys/{listed['id']}/series", timeout=100)
            heard = answer.json()["series"] if answer.status_code == 200 else []
        assert {each["heard"] for each in heard[:10]} == {DEVICES}, heard
        assert all(0 < error < DEVICES for each in heard[:10] for error in each["standard_errors"])
        dev.stop()
    assert list(tmp_path.iterdir()) == []


def test_a_wave_goes_through_the_fleet():
    """The first answer's share rises and falls, every answer has somebody, and most devices stay as they are."""
    held = [[development.answer_at(number, period, 3) for number in range(200)] for period in range(1, 41)]
    shares = [of_period.count(0) / 200 for of_period in held]
    assert 0.1 < min(shares) < 0.2
    assert 0.7 < max(shares) < 0.8
    assert all(set(of_period) == {0, 1, 2} for of_period in held)
    changed = [sum(a != b for a, b in zip(*two, strict=True)) for two in pairwise(held)]
    assert max(changed) < 200 / 10
    assert {development.answer_at(number, 1, 1) for number in range(20)} == {0, None}


def test_a_fleet_is_not_kept(tmp_path):
    """Its devices would come again as others."""
    done = invoked(main, "dev", "--fleet", "3", "--store", str(tmp_path / "kept"))
    assert done.exit_code == 1
    assert "choose one of --fleet and --store" in done.stderr


def test_a_folder_serves_at_one_port(tmp_path, monkeypatch):
    """A second server of the folder finds it taken, says so, and leaves the first one's survey alone."""
    monkeypatch.chdir(tmp_path)
    kept = tmp_path / "kept"
    kept.mkdir()
    development.kept_survey(
        kept, development.kept_authority(kept), development.DevelopmentAsks.alone("yes,no"), time.time()
    )
    before = (kept / "survey.signed").read_bytes()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (kept / "port").write_text(f"{port}\n")
        done = invoked(main, "dev", "--store", "kept", "--answers", "others")
    said = f"changeling: cannot listen on 127.0.0.1, port {port}: Address already in use\n"
    assert (done.exit_code, done.stderr) == (1, said)
    assert (kept / "survey.signed").read_bytes() == before


def test_a_folder_whose_survey_another_authority_signed_is_refused(tmp_path):
    """Whoever put it there is told, and nothing is overwritten."""
    signed = survey().signed_by(Ed25519PrivateKey.from_private_bytes(bytes(32)))
    (tmp_path / "survey.signed").write_bytes(signed)
    with pytest.raises(BadSignature):
        development.kept_survey(tmp_path, AUTHORITY, development.DevelopmentAsks.alone("yes,no"), 1_800_000_000.0)
    assert (tmp_path / "survey.signed").read_bytes() == signed
