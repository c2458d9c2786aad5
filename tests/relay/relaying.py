"""Real relay processes on loopback."""

import os
import subprocess
import sys
from pathlib import Path

import httpx
from changeling_aggregator.testing.serving import free_port
from changeling_protocol.wire import decode_acknowledgement

from ..aggregator.devices import body
from ..aggregator.serving import eventually
from ..protocol.examples import PINNED


class RelayProcess:
    """`changeling relay` on one port; use as a context, again and again. Ready once it is entered."""

    def __init__(self, folder: Path, upstream: str, *options: str, port: int | None = None) -> None:
        folder.mkdir(exist_ok=True)
        public = folder / "pinned.pub"
        public.write_text(PINNED[0].hex())
        self.port = free_port() if port is None else port
        self.url = f"http://127.0.0.1:{self.port}"
        self._command = [
            *(sys.executable, "-m", "changeling_commands", "relay", "--upstream", upstream),
            *("--authority", str(public), "--spool", str(folder / "spool"), "--room", "1"),
            *("--url", self.url, "--port", str(self.port), *options),
        ]

    def __enter__(self) -> "RelayProcess":
        self.process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
        )
        assert self.process.stdout
        self.first_line = self.process.stdout.readline()
        self.http = httpx.Client(base_url=self.url, timeout=100)
        if not eventually(lambda: self.health().get("status"), "ok"):
            health = self.health()
            self.process.kill()
            self.__exit__()
            raise AssertionError(f"the relay is not ready: {health}, {self.complained}")
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()
        self.process.terminate()
        try:
            self.said, self.complained = self.process.communicate(timeout=100)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise

    def kill(self) -> None:
        """SIGKILL, now."""
        self.process.kill()

    def health(self) -> dict[str, str]:
        try:
            told: dict[str, str] = self.http.get("/readyz").json()
        except httpx.TransportError:
            return {}
        return told

    def upload(self, *envelopes: object) -> dict[int, str]:
        """Returns the refused. Raises httpx.HTTPError where nothing was acknowledged."""
        response = self.http.post("/v1/uploads", content=body(*envelopes)).raise_for_status()
        return decode_acknowledgement(response.content, len(envelopes))
