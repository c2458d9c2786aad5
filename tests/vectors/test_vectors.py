"""The vectors are what our code does, and are all that the files hold."""

import json

import pytest

from .generate import FILES, HERE, text


@pytest.mark.parametrize("name", FILES)
def test_a_file_holds_what_the_code_does_today(name):
    """Byte for byte; lives are lived by our client, bodies read by it, and what is to be refused is. Every integer is
    exact for any reader of JSON: larger ones are strings of digits; there are no fractions."""

    def exact(value):
        if isinstance(value, dict | list):
            return all(map(exact, value.values() if isinstance(value, dict) else value))
        return not isinstance(value, float) and (not isinstance(value, int) or abs(value) < 2**53)

    held = (HERE / f"{name}.json").read_text(encoding="utf-8")
    assert text(name) == held
    assert exact(json.loads(held))


def test_every_file_is_one_of_ours_and_lives_state_all_that_a_record_can_become():
    """None is left over from an earlier version; a reader passes over what a record becomes only where it is null."""
    assert {path.stem for path in HERE.glob("*.json")} == {*FILES}
    events = [event for life in json.loads((HERE / "lives.json").read_text())["cases"] for event in life["events"]]
    became = {event["becomes"] for event in events if event["does"] in ("record", "retract")}
    assert became == {"counted", "unchanged", "frozen", "pending"}
