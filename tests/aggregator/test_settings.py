"""Settings of a server: options, the environment, a file; what is wrong with any of them is told at the start."""

from pathlib import Path

import pytest
from changeling_commands.__main__ import main as run

from ..protocol.examples import PINNED
from .serving import ServerProcess


def test_every_mistake_is_named_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the file, of the environment and of the command line, each by its name; nothing is opened."""
    file = tmp_path / "server.toml"
    file.write_text(
        f'stor = "x"\nport = "many"\nhost = true\nmovable-clock = 1\nadmission = "nowhere:admit"\ncertificate = "x"\n'
        f'authority = ["{tmp_path / "missing.pub"}"]\n'
    )
    monkeypatch.setenv("CHANGELING_METRICS_ADDRESS", "9090")
    monkeypatch.setenv("CHANGELING_STORE_KEY", "12")
    assert run(["serve", "--settings", str(file)]) == 1
    error = capsys.readouterr().err
    assert "10 settings are wrong" in error
    assert len(error.splitlines()) == 11
    for said in (
        *(
            "'stor': store?",
            "'--port'",
            "host = True",
            "movable-clock = 1",
            "--admission nowhere:admit",
            "both --certificate",
        ),
        *("missing.pub: No such file", "not '9090'", "$CHANGELING_STORE_KEY holds no store key", "--store"),
    ):
        assert said in error, said


def test_a_movable_clock_is_for_loopback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever can reach it could move it."""
    (tmp_path / "authority.pub").write_text(PINNED[0].hex())
    words = ["serve", "--store", str(tmp_path / "x.db"), "--authority", str(tmp_path / "authority.pub")]
    assert run([*words, "--movable-clock", "--proxy", "10.0.0.1", "--host", "0.0.0.0"]) == 1
    assert capsys.readouterr().err == "changeling: a movable clock is for loopback only, not for 0.0.0.0\n"
    assert not (tmp_path / "x.db").exists()


@pytest.mark.parametrize("content", ["port 8080", 'port = "8080'])
def test_a_file_that_is_no_toml_is_named(content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the place, beside what is missing then."""
    (tmp_path / "server.toml").write_text(content)
    run(["serve", "--settings", str(tmp_path / "server.toml")])
    error = capsys.readouterr().err
    assert "server.toml is no TOML" in error
    assert "at line 1" in error or "end of document" in error


def test_one_mistake_is_told_as_ever(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A missing option, a word too many, an option that there is not."""
    (tmp_path / "authority.pub").write_text(PINNED[0].hex())
    good = ["serve", "--store", str(tmp_path / "x.db"), "--authority", str(tmp_path / "authority.pub")]
    for words, said in (
        (["serve", *good[3:]], "Missing option '--store'"),
        ([*good, "twice"], "'twice'"),
        ([*good, "--prot", "1"], "--prot"),
    ):
        assert run(words) == 2
        error = capsys.readouterr().err
        assert said in error
        assert len(error.splitlines()) == 1
    assert not (tmp_path / "x.db").exists()


def test_the_command_line_counts_before_the_environment_and_that_before_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a server whose one option is `--port 0`; address and rule are the environment's, its clock the file's."""
    file = tmp_path / "server.toml"
    file.write_text('host = "127.0.0.1"\nport = 1\nmovable-clock = true\n')
    monkeypatch.setenv("CHANGELING_SETTINGS", str(file))
    monkeypatch.setenv("CHANGELING_HOST", "127.0.0.2")
    monkeypatch.setenv("CHANGELING_PORT", "2")
    monkeypatch.setenv("CHANGELING_ADMISSION", "rule:admit")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    (tmp_path / "rule.py").write_text("async def admit(headers, body): return 'not admitted'")
    with ServerProcess(tmp_path) as server:
        assert "127.0.0.2" in server.url
        server.move_clock(1_800_000_000)
        assert server.http.post("/v1/uploads", content=b"").json()["detail"] == "not admitted"
