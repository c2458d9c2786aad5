"""Changelogs that travel with the project, by name."""

from pathlib import Path

FOLDER = Path(__file__).parent / "data"


def bundled_names() -> list[str]:
    """The names that `changeling-sim run NAME` knows: file names with dashes, without suffix."""
    return sorted(path.stem.replace("_", "-") for path in FOLDER.glob("*.csv"))


def changelog_path(name: str) -> Path:
    """A file of that path, or else the bundled changelog of that name.

    Raises FileNotFoundError, naming what is bundled, where there is neither.
    """
    path = Path(name)
    if path.exists():
        return path
    if name in bundled_names():
        return FOLDER / f"{name.replace('-', '_')}.csv"
    raise FileNotFoundError(
        f"no file {name!r}, and no bundled changelog of that name: there is {', '.join(bundled_names())}"
    )
