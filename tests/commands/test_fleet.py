"""Devices that `changeling dev --fleet` simulates."""

import json
import os
import subprocess
import sys
import time
from itertools import pairwise
from threading import Thread

import httpx
import pytest
from changeling_commands.dev import answer_at

from tests.command_line import changeling as run

DEVICES = 12
SHORT = (
    "import sys; from changeling_commands import dev as d; d.PERIOD_SECONDS, d.FLEET_PAST = 3, 8; "
    "from changeling_commands.__main__ import main; sys.exit(main())"
)
"""The command with periods of three seconds, of which eight have passed."""


def test_a_wave_goes_through_the_fleet():
    """The first answer's share rises and falls, every answer has somebody, and most devices stay as they are."""
    held = [[answer_at(number, period, 3) for number in range(200)] for period in range(1, 41)]
    shares = [of_period.count(0) / 200 for of_period in held]
    assert 0.1 < min(shares) < 0.2
    assert 0.7 < max(shares) < 0.8
    assert all(set(of_period) == {0, 1, 2} for of_period in held)
    changed = [sum(a != b for a, b in zip(*two, strict=True)) for two in pairwise(held)]
    assert max(changed) < 200 / 10
    assert {answer_at(number, 1, 1) for number in range(20)} == {0, None}


@pytest.mark.heavy
def test_a_fleet_has_a_past_goes_on_and_is_thrown_away(tmp_path):
    """Every closed period is estimated, with bands, from all devices; then live ones come. At the end nothing stays."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", SHORT, "dev", "--fleet", f"{DEVICES}", "--answers", "yes,no"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        cwd=tmp_path,
    )
    drain = None
    try:
        assert process.stdout
        lines = []
        while not lines or not lines[-1].startswith("Look at "):
            lines.append(process.stdout.readline())
            assert lines[-1], lines
        assert "a toy: epsilon" in "".join(lines)
        assert any(line.startswith("    entry = client.join(") for line in lines)
        url = lines[-1].split()[2].rstrip("/")
        drain = Thread(target=process.stdout.read)
        drain.start()
        (listed,) = httpx.get(f"{url}/v1/surveys", timeout=100).json()["surveys"]
        assert listed["public"]
        heard: list[dict[str, float]] = []
        until = time.monotonic() + 150
        while time.monotonic() < until and not (len(heard) > 10 and heard[9]["heard"] == DEVICES):
            time.sleep(0.5)
            answer = httpx.get(f"{url}/v1/surveys/{listed['id']}/series", timeout=100)
            heard = answer.json()["series"] if answer.status_code == 200 else []
        assert {each["heard"] for each in heard[:10]} == {DEVICES}, json.dumps(heard)[:2000]
        assert all(0 < error < DEVICES for each in heard[:10] for error in each["standard_errors"])
    finally:
        process.terminate()
        ended = process.wait(timeout=100)
        if drain is not None:
            drain.join()
        process.stdout.close()
    assert ended == 0
    assert list(tmp_path.iterdir()) == []


def test_a_fleet_is_not_kept(tmp_path, capsys):
    """Its devices would come again as others."""
    assert run(["dev", "--fleet", "3", "--store", str(tmp_path / "kept")]) == 1
    assert "choose one of --fleet and --store" in capsys.readouterr().err
