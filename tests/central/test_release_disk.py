"""What a release leaves on the disk: periods in batches, an output that was changed, full disks, modes of files."""

import os
from itertools import islice

import msgspec
import pytest
from changeling_central import BadState, files, read_rows
from changeling_central.files import load, save
from changeling_central.statement import begun
from changeling_central.testing import Forbidden, NoNoise, Output, SeededNoise, run
from changeling_papers import overwrite

from .test_release import finish, release_in


@pytest.mark.parametrize("together", [2, 4, 100])
def test_periods_released_together_are_those_released_one_by_one(tmp_path, together):
    """To the byte, and each is yielded after its row is published; --until ends a batch."""
    finish(release_in(tmp_path, name="one.csv"), SeededNoise(1))
    release, noise, yielded = release_in(tmp_path), SeededNoise(1), []
    for until in (5, None):
        for period, _ in run(release, noise, until, together=together):
            yielded.append(period)
            assert period in [row[0] for row in read_rows(release.output.path)]
    assert yielded == [1, 2, 3, 4, 5, 6]
    assert release.output.path.read_bytes() == (tmp_path / "one.csv").read_bytes()


def test_a_batch_flushes_the_disk_as_often_as_one_period(tmp_path, monkeypatch):
    """Twelve periods: three flushes for each batch, and those of a beginning."""
    flushed, flush = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda descriptor: (flushed.append(descriptor), flush(descriptor)))
    counts = []
    for together in (1, 6):
        flushed.clear()
        list(run(release_in(tmp_path, periods=12, name=f"{together}.csv"), NoNoise(), together=together))
        counts.append(len(flushed))
    began = counts[0] - 3 * 12
    assert counts[1] == began + 3 * 2


@pytest.mark.parametrize("together", [0, -1])
def test_a_batch_holds_a_period(tmp_path, together):
    """Or nothing would ever be published."""
    with pytest.raises(ValueError, match="at least one period"):
        list(run(release_in(tmp_path), Forbidden(), together=together))


def test_a_published_digit_that_was_changed_is_noticed(tmp_path):
    """A file of the same length, in the last rows too, of which a crash may leave a part. Put back, it goes on."""
    release = release_in(tmp_path)
    finish(release, SeededNoise(1), 4)
    whole, pending = release.output.path.read_bytes(), begun(release.state).saved.pending
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


def test_an_output_that_is_whole_is_never_cut_for_a_moment(tmp_path, monkeypatch):
    """Who reads it while a run begins sees all rows."""
    release = release_in(tmp_path)
    finish(release, NoNoise(), 4)
    monkeypatch.setattr(os, "ftruncate", lambda *_: pytest.fail("the output was cut"))
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
    """A crash left the file beside it, with another mode, and somebody holds it open."""
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
    """Whole, but with other fields."""
    release = release_in(tmp_path)
    finish(release, NoNoise(), 1)
    identity, fields = msgspec.msgpack.decode(load(release.state))
    del fields["published"]
    save(release.state, msgspec.msgpack.encode((identity, fields)))
    with pytest.raises(BadState, match="another version"):
        finish(release, Forbidden())


def test_an_overwritten_snapshot_that_was_cut_short_is_an_error(tmp_path, monkeypatch):
    """A full disk writes less than it was given, and says so in its return alone."""
    monkeypatch.setattr(os, "pwrite", lambda *_: 100)
    with pytest.raises(OSError, match="holds 100 of 4096 bytes"):
        overwrite(tmp_path / "memory", b"a 1")


def test_a_reader_that_stops_early_has_lost_nothing(tmp_path):
    """A batch is published before its first period is yielded; the next run goes on after it."""
    release = release_in(tmp_path)
    run_ = run(release, SeededNoise(1), together=4)
    assert [period for period, _ in islice(run_, 2)] == [1, 2]
    run_.close()
    assert [period for period, _ in finish(release, SeededNoise(2))] == [5, 6]
