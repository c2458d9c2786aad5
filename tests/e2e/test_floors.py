"""The client serves with the lowest versions that its pyproject.toml asks for, and with the newest that there are."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from .conftest import ROOT, Environment

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]

ASKED = tomllib.loads((ROOT / "client_sdk/pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
LOWEST = dict(requirement.split(">=") for requirement in ASKED)
LIFE = Path(__file__).with_name("floor_life.py")


def lived(sdk, folder, requirements):
    """A life in a new environment of these requirements: what it printed, and the versions it had."""
    environment = Environment(folder / "environment")
    environment.install(*requirements)
    environment.install("--no-deps", sdk)
    environment.pip("check")
    (folder / "home").mkdir()
    return json.loads(environment.printed("python", "-W", "error", LIFE, folder / "home")), environment.installed()


def test_each_floor_is_one_version_and_nothing_is_forbidden_above_it():
    """So that a host app is free to pin its own."""
    assert set(LOWEST) == {"httpx", "httpcore", "certifi", "msgpack", "cryptography", "platformdirs"}
    assert all(re.fullmatch(r"\d+(\.\d+)*", version) for version in LOWEST.values())


def test_a_life_is_the_same_with_the_lowest_versions_and_with_the_newest(sdk, tmp_path_factory):
    """A first launch offline, records before and after the survey is known, a restart, all closings sent and opened,
    the survey left; in an environment with just the lowest versions, and in another with the newest. Warnings are
    errors in both."""
    lowest, low = lived(sdk, tmp_path_factory.mktemp("lowest"), [f"{name}=={LOWEST[name]}" for name in LOWEST])
    newest, new = lived(sdk, tmp_path_factory.mktemp("newest"), LOWEST)
    assert lowest == newest
    assert lowest["told"] == ["pending", True, 0, True, "counted", 4, True, 4, "501", True]
    for name, version in LOWEST.items():
        numbers = [tuple(map(int, re.findall(r"\d+", found))) for found in (version, low[name], new[name])]
        assert numbers[1][: len(numbers[0])] == numbers[0]
        assert not any(numbers[1][len(numbers[0]) :])
        assert numbers[2] > numbers[1]
