"""The changelogs that come with the package, found by name."""

from pathlib import Path

FOLDER = Path(__file__).parent / "data"


def bundled_names() -> list[str]:
    """The names that `changeling-sim run NAME` knows."""
    return sorted(path.stem.replace("_", "-") for path in FOLDER.glob("*.csv"))


def changelog_path(name: str) -> Path:
    """Where a changelog is: the file of that path if there is one, else the bundled changelog of that name.

    name: a path, or one of `bundled_names()`.
    Raises FileNotFoundError, which lists the bundled names, if there is neither.
    """
    path = Path(name)
    if path.exists():
        return path
    if name in bundled_names():
        return FOLDER / f"{name.replace('-', '_')}.csv"
    raise FileNotFoundError(
        f"no file {name!r}, and no bundled changelog of that name: there is {', '.join(bundled_names())}"
    )
