"""What else is at a store whose ids lie in files: backups, versions, the doctor, and the command's own words."""

from pathlib import Path

import pytest
from changeling_aggregator import SegmentLost, StoreError
from changeling_aggregator.fold import EngineOptions, fold
from changeling_aggregator.store import Store, back_up
from changeling_aggregator.testing import AFTER, prepared
from changeling_spark import SparkTrouble, session

from tests.command_line import changeling as run

from .here import OnSpark, contents


@pytest.fixture
def folded(tmp_path: Path) -> Path:
    """A store that was folded on Spark."""
    store = Store.open(tmp_path / "server.db")
    log, streams = prepared(store)
    log.append_to(streams)
    (tmp_path / "shared").mkdir()
    shared = str(tmp_path / "shared")
    OnSpark(store, shared).fold()
    store.close()
    return tmp_path / "server.db"


def test_a_backup_asks_for_the_ids_first(folded: Path, tmp_path: Path) -> None:
    """One without them would count again what devices send again."""
    store = Store.open(folded)
    before = contents(store)
    with pytest.raises(StoreError, match="run `changeling fold` first"):
        back_up(store, tmp_path / "backup.db", 0)
    fold(store, AFTER, closing=False)
    back_up(store, tmp_path / "backup.db", 0)
    assert contents(store) == before
    store.close()


def test_without_its_ids_nothing_is_folded(folded: Path, tmp_path: Path) -> None:
    """Whatever engine is to fold: the file is named, and the store as it was."""
    store = Store.open(folded)
    before = contents(store)
    file = next((tmp_path / "shared").iterdir())
    content = file.read_bytes()
    file.unlink()
    with pytest.raises(SegmentLost, match=file.name):
        fold(store, AFTER, closing=False)
    assert contents(store) == before
    file.write_bytes(content)
    fold(store, AFTER, closing=False)
    assert not [*(tmp_path / "shared").iterdir()]
    store.close()


def test_the_doctor_names_a_missing_java(
    folded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without being alarmed: a server needs none."""

    def found() -> str:
        run(["doctor", "--store", str(folded)])
        return " ".join(capsys.readouterr().out.split())

    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert "needs Java 17" in found()
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.touch(0o700)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "its library and Java are here" in found()


def test_a_session_without_java_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is started."""
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    options = EngineOptions("spark://127.0.0.1:1", "/nowhere")
    with pytest.raises(SparkTrouble, match="Java 17"), session.session(options):
        pass


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--engine", "spark"], "comes with --master and --shared"),
        (["--master", "spark://127.0.0.1:1"], "comes with --master and --shared"),
        (["--engine", "spark", "--master", "m", "--shared", "s", "--check"], "leave out --engine"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    folded: Path, options: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a sentence that says which."""
    assert run(["fold", "--store", str(folded), *options]) != 0
    assert says in " ".join(capsys.readouterr().err.split())


def test_of_what_failed_in_a_task_the_reason_is_told() -> None:
    """Without the trace around it; of what is not ours the first line."""
    trace = (
        "Job aborted: lost task 0.3\n  Traceback:\n  changeling_aggregator.errors.SegmentLost: segment a is gone\nmore"
    )
    assert session.first_line(RuntimeError(trace)) == "SegmentLost: segment a is gone"
    assert session.first_line(RuntimeError("\n  Job aborted\n at x")) == "Job aborted"
    assert session.first_line(RuntimeError()) == "RuntimeError"
