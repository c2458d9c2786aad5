"""Whatever is killed, and whenever: what was acknowledged counts exactly once, and nothing else counts."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from changeling_aggregator.testing.services import PostgreSQL, small_bucket
from changeling_aggregator.testing.serving import at_once, killed, restarted, terminated

WRONG = ("lost", "counted_twice", "counted_besides", "differences_folded_again")

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]


@pytest.fixture
def place(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of a new store."""
    on_postgresql = kind.startswith("postgresql")
    return str(request.getfixturevalue("postgresql").new() if on_postgresql else tmp_path / "server.db")


@pytest.fixture
def options(kind: str, tmp_path: Path) -> Iterator[tuple[str, ...]]:
    """Of its servers."""
    if kind == "bucket":
        with small_bucket() as bucket:
            yield "--segments", bucket.place
    else:
        yield ("--segments", str(tmp_path / "segments")) if kind.endswith("segments") else ()


def exact(figures: dict[str, float]) -> bool:
    """Whether something was sent, and all of it counted once."""
    return figures["acknowledged"] > 20 and not any(figures[each] for each in WRONG)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "bucket"])
def test_killed_servers_and_folds_lose_nothing_and_count_nothing_twice(
    tmp_path: Path, place: str, options: tuple[str, ...]
) -> None:
    """Six SIGKILLs, while four senders send, of two servers and of their folds, each of which was at work."""
    figures = killed(tmp_path, place, 6, options)
    assert min(figures["kills_of_server"], figures["kills_of_fold"]) >= 2
    assert figures["kills_of_server"] + figures["kills_of_fold"] >= 6
    assert exact(figures), figures


@pytest.mark.timed
@pytest.mark.parametrize("kind", ["sqlite", "bucket"])
def test_sigterm_under_load_loses_nothing(tmp_path: Path, place: str, options: tuple[str, ...]) -> None:
    """Out within five seconds, with a backlog and senders, where all its processes are told to end."""
    figures = terminated(tmp_path, place, options, backlog=30_000)
    assert figures["left"] > 0
    assert figures["seconds"] < 5
    assert exact(figures), figures


@pytest.mark.timed
def test_a_database_that_is_restarted_under_load_is_used_again(tmp_path: Path) -> None:
    """By itself, within ten seconds each time."""
    with PostgreSQL() as postgresql:
        figures = restarted(tmp_path, postgresql)
    assert figures["seconds"] < 10
    assert exact(figures), figures


@pytest.mark.parametrize("kind", ["postgresql, segments"])
def test_what_is_sent_to_two_servers_at_once_counts_once(tmp_path: Path, place: str, options: tuple[str, ...]) -> None:
    """Each envelope to both, in transactions of either."""
    figures = at_once(tmp_path, place, 1.0, options)
    assert exact(figures), figures
