"""The changelog that a release reads: a file, a frame, or one that is read already."""

from pathlib import Path

from changeling_statistics import ANSWER, BadChangelog, Changelog, Columns, read_csv, read_frame, read_parquet

from ..errors import UnusableChangelog
from ..frames import Frame
from .limits import check_changelog

Source = Changelog | Frame | Path | str


def changelog_of(source: Source, columns: Columns = Columns()) -> Changelog:  # noqa: B008 frozen
    """The changelog of a file, a frame or itself.

    columns: which column holds the answers, and whose the entries are. Raises UnusableChangelog for rows that
    contradict themselves or columns that are missing.
    """
    if isinstance(source, Changelog):
        if columns.answer != ANSWER or (columns.owner is not None and source.owner is None):
            raise UnusableChangelog(
                f"a Changelog holds answers, and no column {columns.owner or columns.answer!a}: read it with that"
            )
        return source
    try:
        if not isinstance(source, str | Path):
            return read_frame(source, columns=columns)
        path = Path(source)
        check_changelog(path)
        return read_parquet(path, columns=columns) if path.suffix == ".parquet" else read_csv(path, columns=columns)
    except BadChangelog as error:
        raise UnusableChangelog(str(error)) from error


def ledger_beside(source: Source) -> Path | None:
    """Where the ledger of a changelog is that is a file; None for any other."""
    if not isinstance(source, str | Path):
        return None
    path = Path(source)
    return path.with_name(path.name + ".ledger")
