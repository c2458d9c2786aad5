"""Sealing keys on the command line, and the store key that they are encrypted under."""

import time
from pathlib import Path

import pytest
from changeling_aggregator.server import real_time
from changeling_aggregator.store import AtRest
from changeling_commands.__main__ import main as run
from changeling_protocol.wire import KEYS, decode_key_list
from changeling_statistics import format_instant

from .serving import Cli, ServerHere


def test_a_sealing_key_from_its_making_to_the_next(
    tmp_path: Path, cli: Cli, capsys: pytest.CaptureFixture[str]
) -> None:
    """keys list tells where each is in its life and how long it has; keys new from when on the next is to be signed."""
    cli("authority", "new", "-o", ".")
    (tmp_path / "store.key").write_text("ab" * 32 + "\n")
    at = ("--store", "server.db", "--store-key-file", "store.key")
    tomorrow = format_instant(time.time() // 3600 * 3600 + 20 * 3600)  # and at no time of a day is that just now
    authority = bytes.fromhex((tmp_path / "authority.pub").read_text())
    at_rest = AtRest(bytes.fromhex("ab" * 32))
    with ServerHere(tmp_path, authority=[authority], at_rest=at_rest, clock=real_time) as server:

        def publish(number: int, *dates: str) -> int:
            cli("keys", "sign", f"{number}.request", "--key", "authority.key", *dates, "-o", f"{number}.signed")
            return run(["keys", "publish", f"{number}.signed", "--server", server.url])

        assert "--begins" not in cli("keys", "new", *at, "-o", "1.request")
        assert publish(1, "--expires", tomorrow) == 0
        assert f"--begins {tomorrow}" in cli("keys", "new", *at, "-o", "2.request")
        assert publish(2, "--expires", "2999-01-01") == 1
        assert f"--begins {tomorrow} or later" in capsys.readouterr().err
        assert publish(2, "--begins", tomorrow, "--expires", "2999-01-01") == 0
        cli("keys", "new", *at, "-o", "3.request")
        table = cli("keys", "list", "--store", "server.db").splitlines()
        states = [[word for word in line.split() if word in ("pending", "active", "unsigned")] for line in table]
        assert sorted(state for found in states for state in found) == ["active", "pending", "unsigned"]
        (active,) = (line for line in table if "active" in line)
        assert all(word in active for word in (f" {tomorrow} ", " 0 ", "encrypted"))
        assert len(decode_key_list(server.http.get(KEYS).content)) == 1
        assert server.http.get("/readyz").json()["troubles"] == []


def test_the_store_key_can_be_replaced(tmp_path: Path, cli: Cli, capsys: pytest.CaptureFixture[str]) -> None:
    """keys reencrypt puts the private keys under another; the old one opens nothing, and no server starts with it."""
    cli("authority", "new", "-o", ".")
    for name in ("old", "new"):
        (tmp_path / name).write_text(name.encode().hex().ljust(64, "0"))
    cli("keys", "new", "--store", "server.db", "-o", "1.request")
    assert "clear" in cli("keys", "list", "--store", "server.db")
    cli("keys", "reencrypt", "--store", "server.db", "--new-store-key-file", "old")
    assert "clear" not in cli("keys", "list", "--store", "server.db")
    renew = ("keys", "reencrypt", "--store", "server.db", "--new-store-key-file", "new")
    assert run([*renew]) == 1
    assert "encrypted: give the store key" in capsys.readouterr().err
    assert "1 private key" in cli(*renew, "--store-key-file", "old")
    (tmp_path / "none").write_text("ab" * 31)
    for file, sentence in (("old", "under another store key"), ("none", "none holds no store key")):
        serve = ["serve", "--store", "server.db", "--authority", "authority.pub", "--port", "0"]
        assert run([*serve, "--store-key-file", file]) == 1
        assert sentence in capsys.readouterr().err
        assert run(["keys", "new", "--store", "server.db", "-o", "2.request", "--store-key-file", file]) == 1
        assert sentence in capsys.readouterr().err
