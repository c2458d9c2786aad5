"""Another implementation, in JavaScript, does what the vectors say; and notices if one of them says something else."""

import json
import random
import re
import shutil
import subprocess
from itertools import product
from pathlib import Path

import pytest

from .generate import FILES, HERE
from .making.examples import SURVEYS
from .making.lives import lived

NODE = shutil.which("node")
RUN = HERE / "node" / "run.mjs"
REMARKS = {"kind", "name", "why"}
FREE = {
    ("bodies", "acknowledgement", "envelopes"): "a request of more envelopes is acknowledged by the same body",
    ("calendars", "closings", "tracks"): "other tracks have nodes that end there as well",
    ("lives", "life", "joined_ms"): "whoever joins before the calendar has nothing more to answer",
}
"""Parts that may be something else: why."""
TAKEN = {
    "bodies": ({"kind": "acknowledgement"}, {"what": "acknowledgement"}),
    "canonical": ({"kind": "value"}, {}),
    "seals": ({"kind": "seal"}, {}),
    "signed": ({"kind": "survey"}, {"object": "survey", "reason": "malformed"}),
    "strata": ({"kind": "stratum"}, {}),
}
"""By file: what is taken, and what would call it refused."""

pytestmark = pytest.mark.skipif(NODE is None, reason="there is no node here: `make test` brings it where it can")


def checked(folder: Path, *names: str) -> subprocess.CompletedProcess[str]:
    assert NODE is not None
    return subprocess.run([NODE, RUN, folder, *names], capture_output=True, text=True, timeout=100)


def read(name):
    return json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))


def write(folder, name, cases):
    (folder / f"{name}.json").write_text(json.dumps({**read(name), "cases": cases}), encoding="utf-8")


def test_every_case_of_every_file_holds():
    """It reads all files and says how many cases of each it checked: all."""
    done = checked(HERE)
    assert done.returncode == 0, done.stderr
    counted = dict(re.findall(r"^(\w+): (\d+) cases", done.stdout, re.MULTILINE))
    assert counted == {name: str(len(read(name)["cases"])) for name in FILES}


def test_a_vector_that_says_something_else_is_noticed(tmp_path):
    """Of every kind of case each part in turn is altered at its beginning or at its end, and what is taken is called
    refused: each is a problem, and what is not altered is none."""
    altered = {name: [*_altered(name)] for name in FILES}
    for name, cases in altered.items():
        assert len(cases) >= len({kind for kind, _, _ in cases})
        write(tmp_path, name, [*read(name)["cases"], *(case for _, _, case in cases)])
    done = checked(tmp_path)
    assert done.returncode == 1
    for name, cases in altered.items():
        before = len(read(name)["cases"])
        noticed = {int(at) for at in re.findall(rf"^{name}\[(\d+)\]", done.stderr, re.MULTILINE)}
        assert min(noticed) >= before, name
        assert {cases[at - before][:2] for at in noticed} == {(kind, part) for kind, part, _ in cases}, name


def _altered(name):
    """Cases of a file that say something else: the kind, the altered part, and the case."""
    cases = read(name)["cases"]
    last = {case["kind"]: case for case in cases if case["kind"] != "refused"}
    for at, case in product((0, -1), last.values()):
        for part, value in case.items():
            if part not in REMARKS and value is not None and (name, case["kind"], part) not in FREE:
                yield case["kind"], part, {**case, part: other(value, at)}
    if name in TAKEN:
        (kept, more), refused = TAKEN[name], next(case for case in cases if case["kind"] == "refused")
        taken = next(case for case in cases if kept.items() <= case.items())
        said = {key: taken.get(key, value) for key, value in refused.items()}
        yield "refused", "", {**said, "kind": "refused", **more}


def test_no_file_is_taken_for_less_than_it_is(tmp_path):
    """A file or a kind that is missing or unknown is a problem, and so is a part of a case that nobody looks at."""
    missing = checked(tmp_path)
    assert (missing.returncode, missing.stderr.splitlines()) == (1, [f"{name}: no such file" for name in sorted(FILES)])
    cases = read("strata")["cases"]
    for words, altered in {
        "no case of kind refused": [case for case in cases if case["kind"] != "refused"],
        "an unknown kind": [*cases, {"kind": "surprise"}],
        "not looked at: surprise": [*cases, {**cases[0], "surprise": 1}],
        "has no": [*cases, {"kind": cases[0]["kind"]}],
        "no case of kind": [],
    }.items():
        write(tmp_path, "strata", altered)
        done = checked(tmp_path, "strata")
        assert done.returncode == 1
        assert words in done.stderr
    write(tmp_path, "strata", cases)
    (tmp_path / "surprise.json").write_text("{}")
    done = checked(tmp_path, "strata")
    assert (done.returncode, done.stderr) == (1, "surprise: an unknown file\n")


LIVED = (
    *("hierarchy", "mixed", "joint", "closed", "closed, from the first period", "states"),
    *("history", "history, closed", "history, time-bounded"),
)


def test_both_implementations_live_any_life_alike(tmp_path):
    """Lives drawn from a seed: records and flushes at any time, one entry or two, enrolled at any time. What leaves the
    device is the same, byte by byte, and so is what a record becomes."""
    write(tmp_path, "lives", [drawn_life(name, random.Random(f"{name} {at}")) for name in LIVED for at in (0, 1)])
    done = checked(tmp_path, "lives")
    assert done.returncode == 0, done.stderr


def drawn_life(name, generator):
    survey = SURVEYS[name]
    whole = survey.calendar.period * survey.calendar.periods
    joined = 0 if survey.closed else generator.randrange(whole) * generator.randrange(2)
    entries = generator.randint(1, 2)
    times = sorted(generator.randrange(1000 * joined + 1, 1000 * whole) / 1000 for _ in range(12))
    events = []
    for seconds in times:
        if generator.randrange(3) == 0:
            events.append((seconds, "flush"))
        elif generator.randrange(4) == 0:
            events.append((seconds, "retract"))
        else:
            events.append((seconds, "record", generator.choice(survey.answers), generator.randrange(entries)))
    events.append((whole + survey.skew + survey.spread + generator.randrange(700), "flush"))
    answers = [generator.choice(survey.answers) for _ in range(entries)] if survey.closed else None
    seed = generator.randrange(2**32)
    return lived(name, survey, events, joined=joined, seed=seed, entries=entries, answers=answers)


def other(value, at):
    """Something else of the same type, deep inside: in the first of every list (at = 0), or the last (at = -1)."""
    match value:
        case None:
            return 0
        case bool():
            return not value
        case int():
            return -1 - value
        case str():
            return value[:-1] + ("1" if value[-1:] == "0" else "0")
        case []:
            return [["0", "0"]]
        case [*items]:
            items[at] = other(items[at], at)
            return items
        case dict():
            last = next(reversed(value), "surprise")
            return {**value, last: other(value.get(last, 0), at)}
    raise AssertionError(type(value))
