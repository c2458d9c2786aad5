"""`changeling dev`: what an app developer meets first."""

import re
import subprocess
import sys
import time
from pathlib import Path

from changeling_aggregator.cli import dev


def test_dev_prints_a_device_and_then_estimates(tmp_path: Path) -> None:
    """Instructions that parse as Python, an estimate once the first period was answered, and a clean end."""
    command = [sys.executable, "-u", "-m", "changeling_commands", "dev", "--answers", "yes,no"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={"TMPDIR": str(tmp_path)}) as process:
        assert process.stdout
        lines: list[str] = []
        began = time.monotonic()
        while not (lines and re.match(r" +1 +-?0\.\d\d ± 0\.\d\d +-?0\.\d\d ± 0\.\d\d$", lines[-1])):
            lines.append(process.stdout.readline().rstrip("\n"))
            assert time.monotonic() - began < 30, lines
        process.terminate()
        assert "thrown away" in process.communicate(timeout=20)[0]
    assert process.returncode == 0
    assert list(tmp_path.iterdir()) == []
    printed = "\n".join(lines)
    assert "FOR DEVELOPMENT ONLY" in printed
    device = "\n".join(line[4:] for line in lines if line.startswith("    "))
    compile(device[: device.index("time.sleep(1)") + 13], "device.py", "exec")


def test_the_first_period_of_a_development_survey_closes_within_ten_seconds() -> None:
    """Whenever it is started."""
    for now in (1_800_000_000.0, 1_800_000_009.99, 1_800_000_003.5):
        survey = dev._survey(("yes", "no"), now)
        assert survey.calendar.start <= now < survey.calendar.time(1) <= now + dev.PERIOD_SECONDS
