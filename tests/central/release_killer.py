"""Runs a charged release, period by period, and kills itself at a named step of the second: run as a process by
test_release_lives."""

import os
import signal
import sys
from pathlib import Path

from changeling_central import OpenDPNoise
from changeling_central.testing import run

from .test_release_lives import charged_in

if __name__ == "__main__":
    drawn = 0

    def reached(name: str) -> None:
        global drawn
        drawn += name == "drawn"
        if name == sys.argv[2] and drawn == 2 - (name == "announced"):
            os.kill(os.getpid(), signal.SIGKILL)

    for _ in run(charged_in(Path(sys.argv[1])), OpenDPNoise(), reached=reached):
        pass
