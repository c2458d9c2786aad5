"""Editions: open results as signed files that never change, and `changeling verify`, which needs no trust in them."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import product
from pathlib import Path

import httpx
import msgspec
import numpy as np
import pytest
from changeling_aggregator.cli import verify
from changeling_aggregator.server import ServerSettings, Service
from changeling_aggregator.store import AtRest, Store
from changeling_commands import main as run
from changeling_protocol import (
    Calendar,
    EarlyEnd,
    Edition,
    MalformedBytes,
    ResultsKey,
    SurveyId,
    UnixSeconds,
    edition_id,
    signed,
)
from changeling_reader import ServerClient
from changeling_statistics import edition_columns, verify_files
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ..protocol.examples import AUTHORITY, PINNED, survey
from . import whole_survey
from .devices import START, envelope, report
from .serving import ADMIN, Cli, OpenSurvey, ServerProcess, eventually, in_process, survey_path

PERIOD, MINIMUM = 7200, 5
Get = Callable[..., httpx.Response]


class Published(OpenSurvey):
    """A server with an open survey of four periods, and what it publishes."""

    def file(self, name: str, edition: str = "latest") -> str:
        return self.path(f"editions/{edition}/{name}")

    def counts(self, period: int, many: int) -> None:
        """So many report on a period, which is due; then all is folded, and published."""
        before = self.now
        self.move_to_due(period)
        self.now = max(self.now, before)
        self.take(*(self.sealed(report(period, number % 13)) for number in range(many)))
        self.service.editions.look()


@pytest.fixture
def published(store: Store) -> Published:
    return Published(store, survey(calendar=Calendar(START, PERIOD, 4), grace=36_000, minimum=MINIMUM))


@pytest.fixture
def get(published: Published) -> Iterator[Get]:
    with in_process(published.service) as asked:
        yield asked


def test_an_edition_never_changes_and_the_latest_follows(published: Published, get: Get) -> None:
    """Under its name each file stays as it is, for any cache and any page's scripts; `latest` names what it is."""
    assert get(published.file("series.json")).status_code == 404
    published.counts(1, 60)
    first = get(published.file("series.json"))
    assert first.headers["access-control-allow-origin"] == "*"
    assert first.headers["cache-control"] == "public, max-age=60"
    name = first.headers["content-location"].split("/")[1]
    fixed = get(published.file("series.json", name))
    assert fixed.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert fixed.content == first.content
    assert name == edition_id(get(published.file("edition.signed", name)).content).hex()
    assert get(published.file("series.json", name), {"if-none-match": fixed.headers["etag"]}).status_code == 304

    published.counts(2, 60)
    later = get(published.file("series.json"))
    assert len(later.json()["series"]) == 2
    assert later.headers["content-location"].split("/")[1] != name
    assert get(published.file("series.json", name)).content == first.content
    for wrong in (published.file("series.xml"), published.file("series.json", "0" * 32), published.file("x", "..")):
        assert get(wrong).status_code == 404


def test_a_file_is_what_the_estimate_would_be(published: Published, get: Get) -> None:
    """The same figures as the API's, as JSON and CSV, by either method; compressed for whoever takes that."""
    published.counts(1, 60)
    published.counts(2, 60)
    for name, method in (("series", "online"), ("retrospective", "retrospective")):
        asked = published.path(f"series?method={method}&confidence=0.95")
        assert get(published.file(f"{name}.json")).json() == get(asked).json()
        assert get(published.file(f"{name}.csv")).text == get(asked + "&format=csv").text
    packed = get(published.file("series.json"), {"accept-encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.json() == get(published.file("series.json"), {"accept-encoding": "identity"}).json()


def test_what_an_edition_holds_is_what_snapshots_show(published: Published, get: Get) -> None:
    """From one edition to the next each node has as many reports, or at least the minimum more."""
    seen, sent = [], 0
    for more in (60, MINIMUM - 1, MINIMUM - 1, 1, MINIMUM, 3, 40):
        published.counts(1, more)
        sent += more
        edition = Edition.unverified(get(published.file("edition.signed")).content)
        seen.append(np.frombuffer(edition.tracks[0][1], "<i8").sum().item())
        assert seen[-1] <= sent
    steps = np.diff(seen)
    assert set(steps[steps != 0] >= MINIMUM) == {True}
    assert (steps == 0).any()
    with published.log.store.view() as view:
        shown = view.shown_strata(published.log.survey.id)
    assert sum(tally.reports for lot in shown.values() for tally in lot.nodes.values()) == seen[-1]
    registered = published.service.registry.surveys[published.log.survey.id]
    columns = edition_columns(registered.survey, published.service.showing.of(registered).tallies())
    assert (edition.tracks, edition.groups) == (columns["tracks"], columns["groups"])


def test_closed_results_have_no_editions(published: Published, get: Get) -> None:
    """Not made while they are closed, and not given out once they are closed again."""
    published.counts(1, 60)
    assert get(published.file("series.json")).status_code == 200
    name = get(published.file("series.json")).headers["content-location"].split("/")[1]
    with published.log.store.transaction() as writing:
        writing.add_survey(published.log.survey.id, published.log.survey.signed_by(AUTHORITY), public=False)
    published.counts(2, 60)
    with published.log.store.view() as view:
        assert [newest.hex() for _, _, newest in view.newest_editions().values()] == [name]
    for edition in ("latest", name):
        assert get(published.file("series.json", edition)).status_code in (401, 404)


def test_the_authority_certifies_the_key(published: Published, get: Get) -> None:
    """Until then an edition has no certificate; from then on it is signed with a key that a reader of the pin knows."""
    published.counts(1, 60)
    assert get(published.file("key.signed")).status_code == 404
    with published.log.store.transaction() as writing:
        public = writing.make_results_key()
        key = ResultsKey(public, START, START + 10**6)
        assert writing.publish_key(key, key.signed_by(AUTHORITY))
        assert not writing.publish_key(key, key.signed_by(AUTHORITY))
        other = ResultsKey(PINNED[0], START, START + 1)
        with pytest.raises(ValueError, match="did not make that key"):
            writing.publish_key(other, other.signed_by(AUTHORITY))
    published.counts(2, 60)
    certified = ResultsKey.from_signed(get(published.file("key.signed")).content, PINNED)
    edition = Edition.from_signed(get(published.file("edition.signed")).content, [certified.public])
    files = {name: get(published.file(name)).content for name in edition.files}
    assert verify_files(published.log.survey, edition, files) == []


def test_the_key_lies_under_the_store_key(tmp_path: Path) -> None:
    """Encrypted as sealing keys are, put under another key with them, and in no backup."""
    old, new = AtRest(bytes(32)), AtRest(bytes([1]) * 32)
    with closing(Store.open(tmp_path / "server.db", old)) as store, store.transaction() as writing:
        public = writing.make_results_key()
        assert writing.make_results_key() == public
        key = writing.signing_key(START)
        assert key is not None
        assert writing.encrypt_keys(new) == 1
    private = key.private.private_bytes_raw()
    assert all(private not in path.read_bytes() for path in tmp_path.iterdir())
    with closing(Store.open(tmp_path / "server.db", new)) as again, again.view() as view:
        opened = view.signing_key(START)
    assert opened is not None
    assert opened.private.private_bytes_raw() == private


def test_verify_names_what_differs(
    server: ServerProcess, cli: Cli, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From a server, and from a folder that was kept: all is well; or one byte is changed, of a tally or a figure; or
    the survey's early end is another, is another's, or is not there."""
    asked = server.new_survey(minimum=1)
    server.move_clock(asked.calendar.time(3) + 16)
    for node in (1, 2, 3):
        server.upload(*(envelope(asked, server.key, [report(node, n % 13)]) for n in range(20)))
    end = EarlyEnd(asked.id, 4).signed_by(AUTHORITY)
    assert server.http.put(f"{survey_path(asked)}/end", content=end, headers=ADMIN).status_code == 201
    server.fold()

    def last() -> int:
        latest = server.http.get(f"{survey_path(asked)}/editions/latest/edition.signed")
        return Edition.unverified(latest.content).last if latest.status_code == 200 else 0

    assert eventually(last, 4)
    (tmp_path / "authority.pub").write_text(PINNED[0].hex())
    pinned = ("--authority", "authority.pub")
    said = cli("verify", asked.id.hex(), "--server", server.url, *pinned, "--keep", "kept")
    for words in (
        "every figure in retrospective.csv, retrospective.json, series.csv, series.json follows",
        "the survey was ended early, after period 4",
        "the server's word alone",
    ):
        assert words in said
    assert "every figure" in cli("verify", "kept", *pinned)

    def told(name: str, content: bytes | None, *options: str) -> str:
        """With this in the place of a file, or without it."""
        file = tmp_path / "kept" / name
        right = file.read_bytes()
        file.unlink() if content is None else file.write_bytes(content)
        assert run(["verify", "kept", *options]) == 1
        file.write_bytes(right)
        return capsys.readouterr().out

    for wrong, words in (
        (EarlyEnd(asked.id, 3).signed_by(AUTHORITY), "ended after period 3, and the edition goes on to 4"),
        (EarlyEnd(asked.id, 1).signed_by(AUTHORITY), "ended after period 1, and the edition goes on to 4"),
        (EarlyEnd(asked.id, 4).signed_by(Ed25519PrivateKey.generate()), "has not signed the survey's early end"),
        (EarlyEnd(SurveyId(bytes(16)), 4).signed_by(AUTHORITY), "of another survey"),
        (None, "the edition ends the survey after period 4, and nobody has signed that"),
    ):
        assert words in told("end.signed", wrong, *pinned)
    answer = json.loads((tmp_path / "kept/series.json").read_bytes())
    answer["series"][1]["values"][2] += 1
    said = told("series.json", msgspec.json.encode(answer), *pinned)
    assert "series.json is not the file that was signed" in said
    assert "series.json, period 2: values[2] is" in said
    signed = (tmp_path / "kept/edition.signed").read_bytes()
    at = signed.index(Edition.unverified(signed).tracks[0][2])
    said = told("edition.signed", signed[:at] + bytes([signed[at] ^ 1]) + signed[at + 1 :])
    for name, period in product(("series.json", "series.csv", "retrospective.json", "retrospective.csv"), (1, 2, 3)):
        assert f"{name}, period {period}: " in said


def test_each_of_several_questions_is_asked_for_by_name(tmp_path: Path) -> None:
    """Estimates, files and what people read are about the one that is named; without a name the names are told."""
    calendar = Calendar(1_800_000_000, 3600, 4)
    questions = [whole_survey.asked(f"Which of {z}?", tuple(map(str, range(z))), f"of{z}") for z in (3, 2)]
    asked = whole_survey.whole_survey_store(tmp_path / "server.db", questions, calendar)
    now = UnixSeconds(calendar.time(4) + 1000.0)
    service = Service(Store.open(tmp_path / "server.db"), ServerSettings(PINNED, lambda: now))
    with in_process(service) as get:
        path = f"/v1/surveys/{asked.id.hex()}"
        refused = get(f"{path}/series")
        assert refused.status_code == 422
        assert "of3, of2" in refused.json()["detail"]
        assert get(f"{path}/series?question=of4").status_code == 422
        service.editions.look()
        for place, z in enumerate((3, 2)):
            answer = get(f"{path}/series?question=of{z}&confidence=0.95").json()
            assert (answer["question"], len(answer["answers"])) == (f"Which of {z}?", z)
            assert get(f"{path}/editions/latest/series-{place}.json").json() == answer
        (row,) = get("/v1/surveys").json()["surveys"]
        assert (row["question"], row["questions"]) == ("Which of 3? · Which of 2?", ["of3", "of2"])
        told = get(f"/page/surveys/{asked.id.hex()}").json()
        assert [each["name"] for each in told["questions"]] == ["of3", "of2"]
        assert get(f"{path}/status").json()["question"] == row["question"]


@pytest.fixture
def verifying(
    published: Published, get: Get, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """Runs `verify` of a survey against a server that answers some paths, by their ends, as it likes."""
    published.counts(1, 60)
    monkeypatch.chdir(tmp_path)

    def verified(named: str, forged: dict[str, bytes | httpx.Response], *options: str) -> tuple[int, str]:
        def answer(request: httpx.Request) -> httpx.Response:
            path = request.url.path.replace(named, published.log.survey.id.hex())
            made = next((content for end, content in forged.items() if path.endswith(end)), None)
            if made is not None:
                return made if isinstance(made, httpx.Response) else httpx.Response(200, content=made)
            found = get(path)
            place = {"content-location": found.headers.get("content-location", "../latest/")}
            return httpx.Response(found.status_code, content=found.content, headers=place)

        client = ServerClient("https://s.example", transport=httpx.MockTransport(answer))
        monkeypatch.setattr(verify, "asking", lambda *_: client)
        return run(["verify", named, "--server", "https://s.example", *options]), capsys.readouterr().out

    return verified


def naming(edition: Edition, name: str) -> bytes:
    """The edition, signed, with one file more, which may have a name that no edition can be made with."""
    fields = {**edition.as_fields(), "files": {**edition.files, name: bytes(32)}}
    return signed(Edition.kind, fields, Ed25519PrivateKey.generate())


@pytest.mark.parametrize("name", ["../outside", "{absolute}"])
def test_a_server_writes_nothing_beside_the_folder_that_is_kept(
    verifying: Callable[..., tuple[int, str]], published: Published, get: Get, tmp_path: Path, name: str
) -> None:
    """An edition names its files, and whoever verifies it need not trust the server that made it."""
    outside = tmp_path / "outside"
    edition = Edition.unverified(get(published.file("edition.signed")).content)
    name = name.format(absolute=outside)
    forged = naming(edition, name)
    asked = published.log.survey.id.hex()
    verifying(asked, {"edition.signed": forged, "/outside": b"anything"}, "--keep", str(tmp_path / "kept"))
    assert not outside.exists()


@pytest.mark.parametrize(
    "name", ["/series.json", "a/b.json", "a\\b.json", "..", "", "SERIES.json", "series", "édition.csv", "x.json\n"]
)
def test_the_files_of_an_edition_have_plain_names(published: Published, name: str) -> None:
    """Whoever keeps them writes to no other place, over no signed file, and to different places for different names."""
    empty = Edition(published.log.survey.id, 1, 1, 1, 1, (), (), {"series-0.json": bytes(32)})
    assert Edition.unverified(empty.signed_by(AUTHORITY)) == empty
    for wrong in (name, "edition.signed", "survey.signed"):
        with pytest.raises(MalformedBytes, match="no file of the name"):
            Edition.unverified(naming(empty, wrong))


@pytest.mark.parametrize("what", ["a place that is none", "figures without an end", "a file that no URL names"])
def test_verify_says_in_a_line_what_is_wrong_with_whatever_it_is_sent(
    verifying: Callable[..., tuple[int, str]], published: Published, get: Get, what: str
) -> None:
    """Nothing that a server answers ends the command by a defect of its own."""
    signed = get(published.file("edition.signed")).content
    edition = Edition.unverified(signed)
    named = naming(edition, "a\nb")
    forged = {
        "a place that is none": {
            "edition.signed": httpx.Response(200, content=signed, headers={"content-location": "x"})
        },
        "figures without an end": {"series.json": b"[" * 100_000},
        "a file that no URL names": {"edition.signed": named},
    }[what]
    assert verifying(published.log.survey.id.hex(), forged)[0] == 1


def test_verify_is_about_the_survey_and_the_edition_that_were_asked_for(
    verifying: Callable[..., tuple[int, str]], published: Published, get: Get
) -> None:
    """A server that shows another survey of the authority's, or another edition of it, is told."""
    (Path("authority.pub")).write_text(PINNED[0].hex())
    right, signed = published.log.survey.id.hex(), get(published.file("edition.signed")).content
    shown = {f"/{name}": get(published.file(name)).content for name in Edition.unverified(signed).files}
    whole = {**shown, "/edition.signed": signed}
    assert verifying(right, whole, "--edition", edition_id(signed).hex(), "--authority", "authority.pub")[0] == 0
    assert verifying("ab" * 16, whole, "--authority", "authority.pub")[0] == 1
    assert verifying(right, whole, "--edition", "ab" * 16, "--authority", "authority.pub")[0] == 1


def test_words_of_a_server_neither_end_a_line_nor_move_the_cursor(
    verifying: Callable[..., tuple[int, str]], published: Published, get: Get
) -> None:
    """What stands in a file in the place of a figure is told on the line of its finding, and is not told at length."""
    said = "\x1b[2J\nthe survey and the edition are signed\ud800" + "x" * 10_000
    right = get(published.file("series.json")).content
    forged = {
        "/series.json": json.dumps({**json.loads(right), "question": said}).encode(),
        "/retrospective.json": json.dumps({said: 1, "series": []}).encode(),
        "/series.csv": right,
        "/retrospective.csv": b"",
    }
    code, told = verifying(published.log.survey.id.hex(), forged)
    assert code == 1
    assert r"series.json: question is \x1b[2J\nthe survey" in told
    assert "\nthe survey and" not in told
    assert max(map(len, told.splitlines())) < 1000


@pytest.mark.parametrize("said", [b"9" * 4000, b"[" * 900 + b"]" * 900, b'{"a":' * 900 + b"1" + b"}" * 900, b"NaN"])
def test_figures_that_no_number_holds_are_named(
    verifying: Callable[..., tuple[int, str]], published: Published, get: Get, said: bytes
) -> None:
    """A file of such figures differs, and the other files are looked at all the same."""
    right = get(published.file("series.json")).content
    epsilon = str(json.loads(right)["epsilon"]).encode()
    forged = {"/series.json": right.replace(b'"epsilon":' + epsilon, b'"epsilon":' + said)}
    code, told = verifying(published.log.survey.id.hex(), forged)
    assert code == 1
    assert [line.partition(" ")[0] for line in told.splitlines() if "series.json" in line] == [
        "series.json",
        "series.json:",
    ]
    assert "retrospective" not in told
