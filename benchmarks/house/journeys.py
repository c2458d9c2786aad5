"""Measure 3 of the house: how many files each of the four journeys of data passes, as docs/architecture.md lists them.

A journey is a heading that begins with "Journey" and its number, and under it a numbered list of files.
"""

import re

from .tree import ROOT

PAGE = ROOT / "docs/architecture.md"
JOURNEYS = (1, 2, 3, 4)


def measure() -> dict[str, float | None]:
    """The number of files of each journey; none where the page does not list it.

    Raises ValueError for a file that is not there, or that one journey passes twice.
    """
    page = PAGE.read_text() if PAGE.exists() else ""
    return {f"3_files_on_journey_{number}": _files(page, number) for number in JOURNEYS}


def _files(page: str, number: int) -> int | None:
    section = re.search(rf"^#+ Journey {number}\b.*?\n(.*?)(?=^#|\Z)", page, re.MULTILINE | re.DOTALL)
    paths = re.findall(r"^\d+\. +\[?`([^`]+)`", section[1], re.MULTILINE) if section else []
    if not paths:
        return None
    for path in paths:
        if not (ROOT / path).is_file():
            raise ValueError(f"journey {number} of {PAGE.name} passes {path}, which is not there")
        if paths.count(path) > 1:
            raise ValueError(f"journey {number} of {PAGE.name} passes {path} twice")
    return len(paths)
