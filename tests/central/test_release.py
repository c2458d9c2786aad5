"""A release: guard, draw, save, publish; resumed without drawing twice; what does not belong together is refused."""

import json
import os
from dataclasses import replace
from fractions import Fraction
from functools import cache

import msgspec
import pytest
from changeling_central import ENTRY, BadState, Law, TimeReversed, answer_query, files, held, read_rows
from changeling_central.files import load, save
from changeling_central.testing import Forbidden, NoNoise, Output, Release, SeededNoise, Statement, begun, run, spending
from changeling_papers import HierarchyRelease, hierarchy
from changeling_protocol import AtMost, Calendar
from changeling_statistics import read_rows as changelog_of

ROWS = [("a", 3, "x"), ("b", 4, "y"), ("c", 12, "x"), ("a", 15, "y"), ("b", 25, ""), ("c", 31, ""), ("d", 55, "x")]
QUERY = "each answer in ('x', 'y')"


@cache
def made(query, calendar, constraint):
    """Its noise is calibrated once for all lives of a release."""
    return hierarchy(query, calendar, constraint, Fraction(1), shape=(2, 3))


def release_in(folder, rows=ROWS, name="out.csv", k=2, query=QUERY, periods=6):
    changelog, calendar, constraint = changelog_of(rows), Calendar(0, 10, periods), AtMost(k)
    counted = answer_query(query, changelog.answers)
    method = HierarchyRelease(made(counted, calendar, constraint))
    output = Output(folder / name, counted.names, 1.0)
    statement = Statement(query, counted, calendar, constraint, spending(ENTRY, 1, 0, None))
    return Release(changelog, statement, method, output)


def by(release, mechanism):
    """The release by another mechanism, at its budget."""
    budget = spending(ENTRY, mechanism.guarantee.epsilon, mechanism.guarantee.delta, None)
    return replace(release, statement=replace(release.statement, spending=budget), mechanism=mechanism)


def finish(release, noise, until=None):
    return list(run(release, noise, until))


@pytest.mark.parametrize("name", ["out.csv", "out.jsonl"])
def test_without_noise_a_release_is_the_truth_at_every_period(tmp_path, name):
    """In CSV and in JSON lines, with a standard error in every row."""
    release = release_in(tmp_path, name=name)
    finish(release, NoNoise())
    rows = read_rows(release.output.path)
    truth = {1: (1, 1), 2: (1, 2), 3: (1, 1), 4: (0, 1), 5: (0, 1), 6: (1, 1)}
    assert [(p, n, round(v, 9)) for p, _, n, v, *_ in rows] == [
        (p, n, v) for p, pair in truth.items() for n, v in zip("xy", pair, strict=True)
    ]
    assert all(row.low < row.estimate < row.high for row in rows)
    assert rows[0][1] == "1970-01-01T00:00:10Z"
    text = release.output.path.read_text()
    if name.endswith("csv"):
        assert text.splitlines()[0] == "period,time,name,estimate,standard_error,low,high"
    else:
        assert json.loads(text.splitlines()[0])["name"] == "x"


def test_a_release_in_parts_is_the_release_in_one_and_goes_on_as_the_changelog_grows(tmp_path):
    """With the same noise, byte for byte; rows that come later may bring new entries and answers."""
    finish(release_in(tmp_path, name="one.csv"), SeededNoise(1))
    noise, names = SeededNoise(1), "parts.csv"
    early = [row for row in ROWS if row[1] <= 20]
    assert [period for period, _ in run(release_in(tmp_path, early, names), noise, 2)] == [1, 2]
    assert begun(tmp_path / f"{names}.state").calendar == Calendar(0, 10, 6)
    grown = [*ROWS, ("z", 56, "a new answer")]
    assert [period for period, _ in run(release_in(tmp_path, grown, names), noise)] == [3, 4, 5, 6]
    assert (tmp_path / names).read_bytes() == (tmp_path / "one.csv").read_bytes()
    assert finish(release_in(tmp_path, grown, names), Forbidden()) == []


@pytest.mark.parametrize(
    "changed", [[("n", 2, "x"), *ROWS], ROWS[1:], [("a", 3.5, "x"), *ROWS[1:]], [("a", 3, "y"), *ROWS[1:3], *ROWS[4:]]]
)
def test_a_changelog_that_differs_in_what_is_released_is_refused(tmp_path, changed):
    """Time runs backwards: a row added, taken away, moved, or with another answer. Nothing is drawn."""
    finish(release_in(tmp_path), NoNoise(), 3)
    with pytest.raises(TimeReversed, match="until period 3"):
        finish(release_in(tmp_path, changed), Forbidden())


@pytest.mark.parametrize(("law", "delta"), [(Law.LAPLACE, 0), (Law.LAPLACE, 1e-6), (Law.GAUSSIAN, 1e-6)])
def test_a_guarantee_about_something_else_is_never_released_with(tmp_path, law, delta):
    """Noise for one mutation where the guard lets entries make two; another query or calendar. More is enough."""
    release = release_in(tmp_path)
    asked = release.statement

    def method(k, query=asked.query, calendar=asked.calendar):
        made = hierarchy(query, calendar, AtMost(k), Fraction(1), Fraction(delta), shape=(2, 3), law=law)
        return HierarchyRelease(made)

    for k in (2, 3):
        assert by(release, method(k)).mechanism.covers(asked.query, asked.calendar, AtMost(2))
    fixed = answer_query(QUERY, release.changelog.answers, fixed=True)
    for other in (method(1), method(2, calendar=Calendar(0, 10, 5)), method(2, fixed)):
        with pytest.raises(ValueError, match="another query, calendar or constraint"):
            by(release, other)
    with pytest.raises(ValueError, match="more than the budget"):
        replace(release, mechanism=HierarchyRelease(hierarchy(asked.query, asked.calendar, AtMost(2), Fraction(2))))


def test_lost_files_are_never_a_fresh_start(tmp_path):
    """An output without its state, one that was cut or is gone, a state that was damaged: refused, nothing drawn."""
    release = release_in(tmp_path)
    finish(release, NoNoise(), 3)
    whole, state = release.output.path.read_bytes(), release.state.read_bytes()
    release.output.path.write_bytes(whole[:60])
    with pytest.raises(BadState, match="lost rows"):
        finish(release, Forbidden())
    release.output.path.write_bytes(whole)
    for broken in (state[:-1], state[:100], b"", state[:60] + b"\0" + state[61:]):
        release.state.write_bytes(broken)
        with pytest.raises(BadState, match="not a whole state"):
            finish(release, Forbidden())
    release.state.write_bytes(state)
    release.output.path.unlink()
    with pytest.raises(BadState, match="lost rows"):
        finish(release, Forbidden())
    assert not release.output.path.exists(), "it can be put back"
    release.output.path.write_bytes(whole)
    release.state.unlink()
    with pytest.raises(BadState, match="exists without its state"):
        finish(release, Forbidden())


class Killed(BaseException):
    """The end of a life: nothing catches it."""


@pytest.mark.parametrize("together", [2, 4, 100])
def test_periods_released_together_are_those_released_one_by_one(tmp_path, together):
    """To the byte, and each is yielded after its row is published; --until ends a batch. Who stops reading early has
    lost nothing; a batch of no periods is refused."""
    finish(release_in(tmp_path, name="one.csv"), SeededNoise(1))
    release, noise, yielded = release_in(tmp_path), SeededNoise(1), []
    for until in (5, None):
        for period, _ in run(release, noise, until, together=together):
            yielded.append(period)
            assert period in [row[0] for row in read_rows(release.output.path)]
    assert yielded == [1, 2, 3, 4, 5, 6]
    stopped = run(release_in(tmp_path, name="stopped.csv"), SeededNoise(1), together=together)
    assert next(stopped)[0] == 1
    stopped.close()
    gone_on = finish(release_in(tmp_path, name="stopped.csv"), SeededNoise(2))
    assert [period for period, _ in gone_on] == [*range(together + 1, 7)]
    with pytest.raises(ValueError, match="at least one period"):
        list(run(release_in(tmp_path, name="none.csv"), Forbidden(), together=1 - together // 2))
    assert release.output.path.read_bytes() == (tmp_path / "one.csv").read_bytes()


def test_a_published_digit_that_was_changed_is_noticed(tmp_path):
    """A file of the same length, in the last rows too, of which a crash may leave a part. Put back, it goes on."""
    release = release_in(tmp_path)
    finish(release, SeededNoise(1), 4)
    whole, pending = release.output.path.read_bytes(), begun(release.state).pending
    for at in (3, len(whole) // 2, len(whole) - len(pending) - 2):
        release.output.path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(BadState, match="was changed in what is published"):
            finish(release, Forbidden())
    release.output.path.write_bytes(whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:])
    with pytest.raises(BadState, match="ends with other rows"):
        finish(release, Forbidden())
    release.output.path.write_bytes(whole[:-3])
    finish(release, Forbidden(), 4)
    assert release.output.path.read_bytes() == whole
    assert [period for period, _ in finish(release, SeededNoise(2))] == [5, 6]


def test_an_output_that_is_whole_is_never_cut_for_a_moment(tmp_path):
    """Who reads it while a run begins sees all rows: it is not written to."""
    release = release_in(tmp_path)
    finish(release, NoNoise(), 4)
    before = release.output.path.stat()
    finish(release, Forbidden(), 4)
    assert release.output.path.stat().st_mtime_ns == before.st_mtime_ns


def test_the_folder_is_flushed_after_the_output_is_created_in_it(tmp_path, monkeypatch):
    """Else a power loss leaves a state whose output is gone; only once."""
    seen, append, flush = [], Output.append, files.flush_folder
    release = release_in(tmp_path)

    def appending(output, at, rows):
        with monkeypatch.context() as patch:
            patch.setattr(
                files, "flush_folder", lambda folder: (seen.append((folder, output.path.exists())), flush(folder))
            )
            return append(output, at, rows)

    monkeypatch.setattr(Output, "append", appending)
    finish(release, NoNoise(), 3)
    finish(release, NoNoise())
    assert seen == [(tmp_path, True)]


def test_a_state_is_never_written_into_a_file_that_others_may_read(tmp_path, monkeypatch):
    """Also where a crash left one beside it, with another mode, and somebody holds it open. While a process holds the
    state, no other releases."""
    release = release_in(tmp_path)
    with held(release.state), pytest.raises(BadState, match="another process"):
        finish(release, Forbidden())
    finish(release, NoNoise(), 1)
    assert release.state.stat().st_mode & 0o077 == 0
    stale = tmp_path / "state.new"
    stale.write_bytes(b"old")
    stale.chmod(0o644)
    modes, replace = [], os.replace
    monkeypatch.setattr(files.os, "replace", lambda a, b: (modes.append(a.stat().st_mode & 0o777), replace(a, b)))
    with stale.open("rb") as held_open:
        save(tmp_path / "state", b"secret 7")
        assert held_open.read() == b"old"
    assert modes == [0o600]
    assert load(tmp_path / "state") == b"secret 7"


def test_a_state_of_another_version_is_refused(tmp_path):
    """Whole, but with other fields, or with the number of that version."""
    release = release_in(tmp_path)
    finish(release, NoNoise(), 1)
    identity, fields = msgspec.msgpack.decode(load(release.state))
    del fields["published"]
    save(release.state, msgspec.msgpack.encode((identity, fields)))
    with pytest.raises(BadState, match="another version"):
        finish(release, Forbidden())
    release.state.write_bytes(b"changeling release 1\n" + bytes(40))
    with pytest.raises(BadState, match="another version"):
        finish(release, Forbidden())
