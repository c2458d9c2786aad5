"""Measure 12 of a server: the steps of the operators' manual, run from its text by the tests that do so."""

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

MANUAL = Path("docs/operator.md")
TESTS = (
    "tests/docs/test_server_pages.py",
    "tests/docs/test_commands.py",
    "tests/aggregator/test_deploy.py",
    "tests/aggregator/test_nginx.py",
    "tests/e2e/test_readme.py",
)


def measure() -> dict[str, float | None]:
    """The lines of its transcripts, the tests that run them, and those of them that failed or had nothing to run on."""
    steps = re.findall(
        r"^\$ ", "".join(re.findall(r"```console\n(.*?)```", MANUAL.read_text(), re.DOTALL)), re.MULTILINE
    )
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-n0", f"--junitxml={report}", *TESTS]
        subprocess.run(command, check=False)  # noqa: S603
        cases = [*ElementTree.parse(report).iter("testcase")]  # noqa: S314
    outcomes = [child.tag for case in cases for child in case if child.tag in ("failure", "error", "skipped")]
    return {
        "12_manual_steps": len(steps),
        "12_manual_tests": len(cases),
        "12_manual_tests_failed": sum(each != "skipped" for each in outcomes),
        "12_manual_tests_skipped": outcomes.count("skipped"),
    }
