"""Settings of a server: options, the environment, a file; what is wrong with any of them is told at the start."""

import pytest
from changeling_commands.__main__ import main as run

from ..protocol.examples import PINNED
from .serving import ServerProcess


def test_every_mistake_is_named_at_once(tmp_path, monkeypatch, capsys):
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


def test_one_mistake_is_told_as_ever(capsys, tmp_path):
    """A missing option, a word too many, an option that there is not; a file that is no TOML, with the place; and a
    movable clock where others could reach it, and move it."""
    (tmp_path / "authority.pub").write_text(PINNED[0].hex())
    good = ["serve", "--store", str(tmp_path / "x.db"), "--authority", str(tmp_path / "authority.pub")]
    file = tmp_path / "server.toml"
    open_ = ["--movable-clock", "--proxy", "10.0.0.1", "--host", "0.0.0.0"]
    for words, code, said in (
        (["serve", *good[3:]], 2, "Missing option '--store'"),
        ([*good, "twice"], 2, "'twice'"),
        ([*good, "--prot", "1"], 2, "--prot"),
        ([*good, *open_], 1, "changeling: a movable clock is for loopback only, not for 0.0.0.0\n"),
    ):
        assert run(words) == code
        error = capsys.readouterr().err
        assert said in error
        assert len(error.splitlines()) == 1
    for content, place in (("port 8080", "at line 1"), ('port = "8080', "end of document")):
        file.write_text(content)
        run([*good, "--settings", str(file)])
        error = capsys.readouterr().err
        assert "server.toml is no TOML" in error
        assert "at line 1" in error or place in error
    assert not (tmp_path / "x.db").exists()


@pytest.mark.heavy
def test_the_command_line_counts_before_the_environment_and_that_before_the_file(tmp_path, monkeypatch):
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
