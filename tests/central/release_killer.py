"""Runs a release, so many periods together, and kills itself at a named step of a numbered period: run as a process by
test_release and, with a ledger, by test_release_lives."""

import os
import signal
import sys
from pathlib import Path

from .test_release import release_in

if __name__ == "__main__":
    folder, step, period, together = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    from changeling_central import OpenDPNoise, files
    from changeling_central.testing import run

    at = {"period": 0}

    def reached(name: str) -> None:
        if name == "drawn":
            at["period"] += 1
        if name == step == "announced" and at["period"] == period - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if name == step and at["period"] == period:
            os.kill(os.getpid(), signal.SIGKILL)

    if step in ("before-replace", "after-replace"):
        replace = os.replace

        def killing(source, target):
            if at["period"] == period and step == "before-replace":
                os.kill(os.getpid(), signal.SIGKILL)
            replace(source, target)
            if at["period"] == period:
                os.kill(os.getpid(), signal.SIGKILL)

        files.os.replace = killing
    if len(sys.argv) > 5:
        from .test_release_lives import charged_in as release_in
    for _ in run(release_in(folder), OpenDPNoise(), reached=reached, together=together):
        pass
