"""`changeling dev`: what an app developer meets first. The device is the very script that it prints."""

import os
import re
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from queue import Empty, Queue
from threading import Thread

import pytest
from changeling_commands import dev as development
from changeling_commands.__main__ import main
from changeling_protocol import BadSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ..protocol.examples import AUTHORITY, survey

SHORT = (
    "import sys; from changeling_commands import dev as development; development.PERIOD_SECONDS = 2; "
    "from changeling_commands.__main__ import main; sys.exit(main())"
)
"""The command with periods of two seconds, so that a test need not wait for ten."""
ALONE = r" +\d+ +1 of 1 +1\.00 ± 0\.00 +0\.00 ± 0\.00$"
"""The one device there is was heard, and holds the first of two answers."""
DEADLINE_SECONDS = 150


class Running:
    """`changeling dev` in a process of its own, and what it has printed so far."""

    def __init__(self, folder, *words):
        self.folder, self.lines, self._printed = folder, list[str](), Queue[str]()
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-c", SHORT, "dev", *words],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(folder)},
            cwd=folder,
        )
        self._reading = Thread(target=self._read)
        self._reading.start()

    def _read(self):
        assert self.process.stdout
        for line in self.process.stdout:
            self._printed.put(line.rstrip("\n"))

    def wait_for(self, pattern):
        """Until it prints a line like this."""
        until = time.monotonic() + DEADLINE_SECONDS
        while not (self.lines and re.match(pattern, self.lines[-1])):
            try:
                self.lines.append(self._printed.get(timeout=max(0.0, until - time.monotonic())))
            except Empty:
                pytest.fail(f"{pattern!r} was not printed: {self.lines}")

    @property
    def script(self):
        """The device that it prints."""
        instructions = self.lines[
            : next(at for at, line in enumerate(self.lines) if line.startswith("A period closes"))
        ]
        return "\n".join(line[4:] for line in instructions if line.startswith("    "))

    def told(self, pattern):
        """What the script has where the pattern has a group."""
        found = re.search(pattern, self.script)
        assert found, self.script
        return found[1]

    @contextmanager
    def device(self):
        """The script, running in the folder."""
        process = subprocess.Popen(
            [sys.executable, "-u", "-c", self.script], cwd=self.folder, stdout=subprocess.PIPE, text=True
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate(timeout=100)

    def stop(self):
        """End it as a process manager does; returns the last line."""
        self.process.terminate()
        assert self.process.wait(timeout=100) == 0
        self._reading.join()
        assert self.process.stdout
        self.process.stdout.close()
        while not self._printed.empty():
            self.lines.append(self._printed.get())
        return self.lines[-1]


@contextmanager
def running(folder, *words):
    dev = Running(folder, *words)
    try:
        dev.wait_for("period +heard")
        yield dev
    finally:
        if dev.process.poll() is None:
            dev.stop()


@pytest.mark.heavy
def test_what_is_kept_goes_on_with_the_same_survey_or_another_of_the_same_authority(tmp_path):
    """One device is seen alone, and before it comes, that nobody was heard. Its own store does not break: it goes on,
    and joins the other survey beside the first."""
    server, authority, asked = r'server="(.+)"', r'fromhex\("(.+)"\)', r'join\("(.+)"\)'
    told = []
    for answers in ("yes,no", "yes, no", "yes,never"):
        with running(tmp_path, "--store", "kept", "--answers", answers) as dev:
            assert any("FOR DEVELOPMENT ONLY" in line for line in dev.lines)
            told.append([dev.told(pattern) for pattern in (server, authority, asked)])
            if len(told) == 1:
                dev.wait_for(r" +\d+ +nothing yet: no device was heard$")
            with dev.device() as device:
                dev.wait_for(ALONE)
                assert device.stdout
                assert device.stdout.readline().startswith("Recorded.")
                assert device.stdout.readline().startswith("Flushed(sent=")
            assert dev.stop() == "stopped; everything is kept in kept"
    first, again, other = told
    assert again == first
    assert other[:2] == first[:2]
    assert other[2] != first[2]
    assert (tmp_path / "kept" / "authority.key").stat().st_mode & 0o777 == 0o600


@pytest.mark.usefixtures("cli")
def test_a_folder_serves_at_one_port(tmp_path, capsys):
    """A second server of the folder finds it taken, says so, and leaves the first one's survey alone."""
    kept = tmp_path / "kept"
    kept.mkdir()
    development.kept_survey(kept, development.kept_authority(kept), ("yes", "no"), time.time())
    before = (kept / "survey.signed").read_bytes()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (kept / "port").write_text(f"{port}\n")
        assert main(["dev", "--store", "kept", "--answers", "others"]) == 1
    assert capsys.readouterr().err == f"changeling: cannot listen on 127.0.0.1, port {port}: Address already in use\n"
    assert (kept / "survey.signed").read_bytes() == before


def test_a_folder_whose_survey_another_authority_signed_is_refused(tmp_path):
    """Whoever put it there is told, and nothing is overwritten."""
    signed = survey().signed_by(Ed25519PrivateKey.from_private_bytes(bytes(32)))
    (tmp_path / "survey.signed").write_bytes(signed)
    with pytest.raises(BadSignature):
        development.kept_survey(tmp_path, AUTHORITY, ("yes", "no"), 1_800_000_000.0)
    assert (tmp_path / "survey.signed").read_bytes() == signed
