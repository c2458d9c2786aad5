"""From the command to a page with bands: how long somebody who has just installed waits for a simulated fleet.

It begins with the third of three commands (clone, install, `changeling dev --fleet 200`); installing is timed by
`benchmarks.house.installs`.
"""

import os
import subprocess
import sys
import time
from contextlib import suppress
from tempfile import TemporaryDirectory

import httpx

DEVICES = 200
PERIODS = 30
"""So many periods with bands are a picture."""
MOST_SECONDS = 300.0


def measure() -> dict[str, float | None]:
    """Seconds until the page's address is printed, until the page is there, and until it has estimates with bands."""
    with TemporaryDirectory() as folder:
        began = time.monotonic()
        process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-u", "-m", "changeling_commands", "dev", "--fleet", f"{DEVICES}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "TMPDIR": folder},
        )
        try:
            url = _address(process)
            printed = time.monotonic() - began
            page = httpx.get(url).status_code == 200
            bands = _until_bands(url, began)
        finally:
            process.terminate()
            process.communicate(timeout=30)
    return {
        "8_commands": 3,
        "8_devices": DEVICES,
        "8_seconds_to_the_address": printed,
        "8_seconds_to_bands": bands,
        "8_seconds_to_a_page_with_bands": bands if page else None,
    }


def _address(process: "subprocess.Popen[str]") -> str:
    assert process.stdout  # noqa: S101
    for line in process.stdout:
        if line.startswith("Look at "):
            return line.split()[2]
    raise RuntimeError("the development server did not start")


def _until_bands(url: str, began: float) -> float | None:
    """Seconds from `began` until so many periods are estimated, each with a standard error of every answer."""
    (survey,) = httpx.get(f"{url}v1/surveys").json()["surveys"]
    while time.monotonic() - began < MOST_SECONDS:
        with suppress(httpx.HTTPError, KeyError, ValueError):
            series = httpx.get(f"{url}v1/surveys/{survey['id']}/series", timeout=20).json()["series"]
            if sum(all(error and error > 0 for error in each["standard_errors"] or [0]) for each in series) >= PERIODS:
                return time.monotonic() - began
        time.sleep(0.2)
    return None
