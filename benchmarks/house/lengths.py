"""Measure 1 of the house: how long a source file is."""

from statistics import median

from .tree import shipped


def measure() -> dict[str, float | None]:
    """The lines of the median and of the longest file that is shipped; files without a line are no files."""
    lines = [count for path in shipped() if (count := len(path.read_text().splitlines()))]
    return {"1_files": len(lines), "1_median_lines": median(lines), "1_longest_lines": max(lines)}
