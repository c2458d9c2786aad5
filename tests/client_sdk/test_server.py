"""Sending, and a server's ways: kept until acknowledged or past grace, polite, and the same size whatever is said."""

import gzip
import time
from dataclasses import replace
from email.utils import formatdate

import httpx
import pytest
from changeling_client import BadSurvey, outbox
from changeling_protocol import KaryResponse, MutationSpace, Track, decode, encode, head_of, key_id
from changeling_protocol.wire import MOST_BODY_BYTES, MOST_ENVELOPES_TAKEN
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from .device import LATE, PLAIN, START, TRUTHFUL, URL, all_nodes, answering, asking, by_node, raising, signed_key

TODAY = formatdate(START, usegmt=True)
PACKED = answering(200, gzip.compress(encode({"keys": []})), content_encoding="gzip")
TROUBLES = {
    "redirect": (answering(302, location="http://elsewhere.example"), "302"),
    "not MessagePack": (answering(200, b"<html>"), "cannot be read"),
    "another map": (answering(200, encode({"refused": 1})), "cannot be read"),
    "index past the end": (answering(200, encode({"refused": [[9, "malformed"]]})), "cannot be read"),
    "endless": (answering(200, bytes(MOST_BODY_BYTES + 1)), f"longer than {MOST_BODY_BYTES}"),
    "packed": (PACKED, "packed"),
    "refused connection": (raising(httpx.ConnectError("secret detail")), "ConnectError"),
    "timeout": (raising(httpx.ReadTimeout("secret detail")), "ReadTimeout"),
    "cut off": (raising(httpx.RemoteProtocolError("secret detail")), "RemoteProtocolError"),
    "operating system": (raising(ConnectionResetError("secret detail")), "ConnectionResetError"),
    "a hook of the app's": (raising(KeyError("secret detail")), "KeyError"),
    "not a URL": (raising(httpx.InvalidURL("secret detail")), "InvalidURL"),
}


@pytest.mark.parametrize("on", ["/v1/keys", "/v1/uploads"])
@pytest.mark.parametrize("name", TROUBLES)
def test_no_trouble_with_the_server_loses_anything(joined, name, on):
    """flush returns the trouble in words without detail, keeps all, and the next flush sends the same reports."""
    reply, words = TROUBLES[name]
    handle, device, server, _ = joined(PLAIN)
    handle.record("tea")
    server.reply = lambda request: reply(request) if request.url.path == on else None
    flushed = device.at(LATE).flush()
    answered = 8 if on == "/v1/uploads" else 0  # before a time was heard, several closings wait to be answered
    assert (flushed.sent, flushed.waiting, flushed.dropped) == (0, answered, 0)
    assert words in flushed.trouble
    assert "secret" not in flushed.trouble
    tried = server.answers()
    server.reply = lambda _: None
    server.bodies.clear()
    flushed = device.flush()
    assert (flushed.sent, flushed.waiting, flushed.trouble) == (8, 0, None)
    assert set(by_node(server)) == all_nodes(PLAIN)
    assert tried == [] or tried == server.answers()


@pytest.mark.parametrize(
    ("reason", "now", "sent", "waiting", "dropped"),
    [
        ("malformed", LATE, 8, 8, 0),
        ("something new", LATE, 8, 8, 0),
        ("malformed", START + 480 + 10**6 + 1, 0, 0, 16),
        ("closed", LATE, 8, 0, 8),
        ("closed", START + 80, 1, 1, 0),
    ],
)
def test_what_is_refused_waits_until_its_grace_is_over_or_the_server_says_that_the_survey_is(
    joined, reason, now, sent, waiting, dropped
):
    """The latter only once our calendar is: before, the server has not begun the survey, a quarrel about the time."""
    handle, device, server, _ = joined(PLAIN, entries=2)
    server.refused = [[0, reason]]
    for first in (True, False):
        flushed = device.at(now).flush()
        assert (flushed.sent, flushed.waiting, flushed.dropped) == (
            (sent, waiting, dropped) if first else (0, waiting, 0)
        )
    assert sum(handle.ledger(entry).dropped for entry in range(2)) == dropped
    server.refused = []
    assert device.flush().sent == waiting


def test_some_refused_means_the_others_are_done(joined):
    """Only the uploads that the server lists are kept; a flush with nothing to send asks nobody."""
    handle, device, server, _ = joined(PLAIN, entries=3)
    server.refused = [[1, "malformed"]]
    flushed = device.at(LATE).flush()
    assert (flushed.sent, flushed.waiting, flushed.dropped) == (16, 8, 0)
    assert "malformed" in flushed.trouble
    assert [handle.ledger(entry).waiting for entry in range(3)] == [0, 8, 0]
    server.refused = []
    assert device.flush().sent == 8
    before = len(server.requests)
    assert device.flush().sent == 0
    assert len(server.requests) == before


@pytest.mark.parametrize("reason", ["unknown-key", "expired-key"])
def test_a_stale_sealing_key_is_fetched_again(joined, reason):
    """After such a refusal the next flush asks for the keys, and seals the same reports with the new one."""
    _, device, server, _ = joined(PLAIN)
    server.refused = [[0, reason]]
    assert device.at(LATE).flush().waiting == 8
    first = server.answers()
    server.private = X25519PrivateKey.generate()
    server.keys = [signed_key(server.private)]
    server.refused = []
    server.bodies.clear()
    assert device.flush().sent == 8
    assert server.answers() == first
    assert server.paths().count("/v1/keys") == 2


def test_the_newest_valid_key_of_the_authority_is_used_and_kept(joined, begin):
    """Keys of strangers, of the past and of the future are passed over; a kept key is not asked for again."""
    _, device, server, _ = joined(PLAIN)
    newest = X25519PrivateKey.generate()
    stranger = Ed25519PrivateKey.generate()
    server.private = newest
    server.keys = [
        signed_key(X25519PrivateKey.generate(), 0, 2**32),
        signed_key(newest, 100, 2**32),
        signed_key(X25519PrivateKey.generate(), 200, START),
        signed_key(X25519PrivateKey.generate(), 2**31 - 1, 2**32),
        signed_key(X25519PrivateKey.generate(), 300, 2**32, authority=stranger),
        b"no key",
    ]
    for period in (1, 2, 3):
        device = begin(after=device).device
        assert device.at(START + 60 * period + 20).flush().sent == 1
    assert len(server.reports()) > 0
    assert server.paths().count("/v1/keys") == 1


def test_two_entries_are_never_in_one_envelope(joined):
    """Each envelope holds the answers of one entry: one report of each node; its ids appear nowhere else."""
    _, device, server, _ = joined(PLAIN, entries=5)
    device.at(LATE).flush()
    assert len(server.bodies) == 1
    for envelope in server.opened():
        assert len(envelope) == len({(report.track, report.node) for report, _, _ in envelope}) == 14
    assert len({closing.id for closing in server.closings()}) == 5 * 8


@pytest.mark.parametrize(("most", "bodies"), [(MOST_ENVELOPES_TAKEN, [150]), (64, [64, 64, 22])])
def test_many_envelopes_share_bodies_within_the_limits(begin, monkeypatch, most, bodies):
    """150 entries make one body, as a server takes 4,096, or as many as it would take; none has too many bytes. What is
    refused of the first is told, though the others go through."""
    monkeypatch.setattr(outbox, "MOST_ENVELOPES_TAKEN", most)
    device, server, _ = begin(PLAIN)
    refusal = httpx.Response(200, content=encode({"refused": [[3, "too-large"]]}))
    server.reply = lambda request: refusal if request.method == "POST" and len(server.bodies) == 1 else None
    device.join(PLAIN.id, entries=150)
    flushed = device.at(LATE).flush()
    assert (flushed.sent, flushed.waiting, "too-large" in flushed.trouble) == (149 * 8, 8, True)
    assert [len(decode(body)["envelopes"]) for body in server.bodies] == bodies
    assert MOST_ENVELOPES_TAKEN == 4096
    assert all(len(body) <= MOST_BODY_BYTES for body in server.bodies)


def test_a_long_offline_spell_is_cut_into_uploads_of_64_periods(joined):
    """150 periods make three uploads, and every node is in one of them."""
    response = KaryResponse(MutationSpace(3), TRUTHFUL)
    asked = asking(Track(1, response, 0, 150), Track(50, response, 0, 150), periods=150)
    _, device, server, _ = joined(asked)
    assert device.at(START + 60 * 150 + 20).flush().sent == 150
    assert [len({report.node for report, _, _ in e if report.track == 0}) for e in server.opened()] == [64, 64, 22]
    assert set(by_node(server)) == all_nodes(asked)


def test_a_device_ahead_of_the_server_waits_for_it(joined, begin):
    """What is due by a clock that is two minutes ahead waits until it is due by the server's, and no longer."""
    _, device, server, _ = joined(PLAIN, now=START + 125, signed=None)

    def sent(now, the_server_says):
        server.headers = {"date": formatdate(START + the_server_says, usegmt=True)}
        return device.at(START + now).flush().sent

    assert sent(125, 5) == 0
    assert sent(185, 64) == 0, "a second is lost to the date's rounding; at 65 nothing is due, whatever its delay"
    device = begin(after=device).device
    server.reply = answering(500)
    assert sent(185, 64) == 0, "the lead outlives the process"
    server.reply = lambda _: None
    assert sent(320, 200) == 3, "nodes that closed before it joined by its own clock, not by the server's"
    assert sent(260, 260) == 1, "a clock that was set right is not held back"
    assert {node.end for _, node, _ in server.reports()} == {1, 2, 3, 4}


@pytest.mark.parametrize(
    ("now", "ahead", "due"),
    [(START, 10**8, START + 80), (START + 0.999, -0.999, START + 75)],
    ids=["ahead", "agreeing"],
)
def test_a_server_that_is_not_behind_neither_hurries_nor_delays(joined, now, ahead, due):
    """One whose Date is years ahead opens no node early; one that agrees holds none back, as a Date is rounded down."""
    _, device, server, _ = joined(PLAIN, now=now)
    server.headers = {"date": formatdate(now + ahead, usegmt=True)}
    assert device.at(START + 60 + 4).flush().sent == 0
    assert device.at(due).flush().sent == 1


def test_a_date_means_the_same_in_every_time_zone(joined, monkeypatch):
    """Also one that names none: -0000 is UTC, not the zone the device is in."""
    _, device, server, _ = joined(PLAIN)
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        server.headers = {"date": formatdate(START + 80)}
        assert device.at(START + 80).flush().sent == 1
        assert device.at(START + 140).flush().sent == 1
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_body_that_is_too_large_goes_in_parts(joined):
    """A proxy that takes fewer bytes than the protocol allows holds nothing up, but for an upload that is alone."""
    _, device, server, _ = joined(PLAIN, entries=10)
    most = 0
    server.reply = lambda request: httpx.Response(413) if len(request.content) > most else None
    assert device.at(LATE).flush().waiting == 80
    most = max(map(len, server.bodies)) // 3
    server.bodies.clear()
    assert device.flush().sent == 80
    assert len({closing.id for closing in server.closings()}) == 80


@pytest.mark.parametrize(
    "headers",
    [
        {},
        *({"date": date} for date in ("", "yesterday", "Sun, 99 Foo 2026 08:49:37 GMT")),
        *({"date": TODAY, "age": age} for age in ("1", "86400", "0, 7", "old")),
    ],
)
def test_an_answer_without_a_date_of_its_own_tells_no_time(joined, headers):
    """None, one that cannot be read, or one of a cached answer: by the device's clock alone nothing is joined."""
    _, device, server, _ = joined(PLAIN, signed=None)
    server.headers = headers
    assert device.flush().trouble == "the server told no time"
    server.headers = {"date": TODAY, "age": "0"}
    assert device.flush().trouble is None


@pytest.mark.parametrize("status", [200, 302, 404, 429, 503])
def test_any_fresh_answer_tells_the_time(joined, begin, status):
    """Whatever its status: a device that is a minute ahead answers nothing more before the server's time comes, also
    started again."""
    _, device, server, _ = joined(PLAIN)
    server.reply = answering(status, b"", date=formatdate(START + 20, usegmt=True))
    assert device.at(START + 80).flush().waiting == 1
    server.reply = raising(httpx.ConnectError(""))
    again, *_ = begin(server=server, now=START + 140)
    for each in (device.at(START + 140), again):
        assert each.flush().waiting == 1
    server.reply = lambda _: None
    assert again.flush().sent == 2


def test_a_clock_that_is_set_back_meanwhile_makes_no_false_lead(joined):
    """The device's time when it asked is what the present clock would have shown then, at the latest."""
    _, device, server, clock = joined(PLAIN, signed=None, now=START + 10**8)

    def set_right(_request):
        clock.now = START
        server.headers = {"date": TODAY}

    server.reply = set_right
    assert device.flush().trouble is None
    server.reply = lambda _: None
    server.headers, clock.now = None, START + 80
    assert device.flush().sent == 1


def test_every_server_is_left_in_peace_by_itself(begin):
    """What a relay asked for does not silence the app's own server."""
    relayed, urls = replace(PLAIN, relay="https://relay.example/"), []
    device, server, clock = begin(relayed, PLAIN)

    def reply(request):
        urls.append(request.url.host)
        busy = request.url.host == "relay.example"
        return httpx.Response(503, headers={"retry-after": "60"}) if busy else None

    server.reply = reply
    device.join(relayed.id)
    device.join(PLAIN.id)
    assert device.at(LATE).flush().sent == 8
    assert "left alone" in device.at(clock.now + 1).flush().trouble
    assert urls.count("relay.example") == 1


@pytest.mark.parametrize("relay", ["http://relay.example", "relay.example", "https://alice@relay.example", "ftp://x"])
def test_a_relay_is_https_or_on_loopback_like_a_server(begin, relay):
    """A survey's word for it is not enough: a survey with another is refused."""
    bad = replace(PLAIN, relay=relay)
    device = begin(bad).device
    with pytest.raises(BadSurvey, match="the server's URL must"):
        device.join(bad.id)


def test_a_servers_wish_for_silence_outlives_the_client(joined, begin):
    """Though the survey itself could not be fetched; a clock that is set back ends the wait."""
    _, device, server, _ = joined(PLAIN, signed=None)
    server.reply = answering(503, retry_after="3600")
    for passed in (0, 10, 3599):
        device = begin(after=device).device
        assert ("503" if passed == 0 else "left alone") in device.at(START + passed).flush().trouble
    assert len(server.requests) == 1
    server.reply = lambda _: None
    device = begin(after=device).device
    assert device.at(START - 1).flush().trouble is None


class Slow:
    """Coins that take their time, as a store of many entries does."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def below(self, n):
        time.sleep(0.1)
        self.seconds += 0.1
        return n // 2


@pytest.mark.timed
def test_the_timeout_is_the_networks_and_answering_is_not_counted(joined):
    """A flush that answers for longer than the network may take sends what it answered all the same."""
    _, device, *_ = joined(PLAIN)
    device._device.coins = coins = Slow()
    assert device.at(START + 80).flush(timeout=0.2).sent == 1
    assert coins.seconds > 0.2


FIRST, LAST = "Mon, 01 Jan 0001 00:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 GMT"
NONSENSE = ["soon", "-5", "1.5", "1e9", "NaN", "inf", "+5", "²", "\u0663", ""]
NONSENSE += ["12:00:00 PM", "Sat, 00 Foo 99999 99:99:99"]


@pytest.mark.parametrize(
    ("status", "after", "date", "silence"),
    [
        *((status, "120", None, 120) for status in (429, 500, 503, 599, 302, 404)),
        (503, "0", None, 0),
        (503, "86401", None, 86_400),
        (503, "9" * 30, None, 86_400),
        (503, formatdate(START + 300, usegmt=True), "", 300),
        (503, formatdate(START + 300, usegmt=True), formatdate(START + 100, usegmt=True), 200),
        (503, formatdate(START - 300, usegmt=True), None, 0),
        (503, FIRST, LAST, 0),
        (503, LAST, FIRST, 86_400),
        (503, LAST, LAST, 0),
        (503, LAST.replace("GMT", "-2359"), LAST, 86_340),
        *((503, nonsense, None, 0) for nonsense in NONSENSE),
    ],
)
def test_retry_after_is_honoured(joined, status, after, date, silence):
    """On any status but 200, in seconds or as a date by the server's own clock, for a day at the most."""
    told = {} if date is None else {"date": date}
    _, device, server, clock = joined(PLAIN, signed=None)
    server.reply = lambda _: httpx.Response(status, headers=[*told.items(), ("retry-after", after.encode("utf-8"))])
    assert str(status) in device.flush().trouble
    server.reply = lambda _: None
    if silence:
        assert "left alone" in device.at(clock.now + silence - 0.001).flush().trouble
        clock.now += 0.001
    assert len(server.requests) == 1
    assert device.flush().trouble is None


@pytest.mark.parametrize("relay", ["", "https://relay.example"])
def test_uploads_to_the_apps_own_server_alone_carry_the_token(joined, relay):
    """Not what is fetched from it, and nothing that goes to a relay which the survey declares. That is asked for the
    keys and the time as well, and the server for the survey alone."""
    asked, shown = replace(PLAIN, relay=relay), []
    _, device, server, _ = joined(asked, signed=None, upload_token="of-the-app")
    server.reply = lambda request: shown.append((str(request.url), request.headers.get("authorization")))
    device.flush()
    assert device.at(LATE).flush().sent == 8
    other, token = (relay, None) if relay else (URL, "Bearer of-the-app")
    assert shown[0] == (f"{URL}/v1/surveys/{asked.id.hex()}", None)
    assert set(shown[1:]) == {(f"{other}/v1/keys", None), (f"{other}/v1/uploads", token)}


def test_a_list_of_thousands_of_signed_keys_costs_a_few_signatures(joined):
    """A device looks at sixty-four of them, and keeps no more."""
    _, device, server, _ = joined(PLAIN)
    server.keys += [signed_key(server.private, expires=2**32 + 1 + each) for each in range(200)]
    assert device.at(START + 80).flush().sent == 1
    with device.store.transaction() as db:
        assert db.execute("SELECT count(*) FROM sealing_keys").fetchone() == (64,)


@pytest.mark.timed
def test_a_slow_server_takes_no_time_from_another(begin):
    """Whatever it does, what goes elsewhere is sent in the same flush, and not dropped at last."""
    slow, quick = replace(PLAIN, relay="https://a.example"), replace(PLAIN, relay="https://z.example")
    (device, server, _), hosts = begin(slow, quick), []

    def crawl(request):
        hosts.append(request.url.host)
        if request.url.host == "a.example":
            time.sleep(0.7)

    device.join(slow.id)
    device.join(quick.id)
    server.reply = crawl
    assert device.at(START + 80).flush(0.5).sent == 1
    assert hosts.count("z.example") == 2


@pytest.mark.xfail(strict=True, reason="keys are valid by the device's time less its lead, which a server makes up")
def test_a_server_whose_clock_is_behind_does_not_bring_back_a_key_that_has_expired(joined):
    """Whoever got hold of an old key could open what is sealed to it."""
    _, device, server, _ = joined(PLAIN)
    old = X25519PrivateKey.from_private_bytes(b"o" * 32)
    server.keys = [signed_key(old, 0, START - 10**6)]
    device.at(START + 80).flush()
    server.headers = {"date": formatdate(START - 2 * 10**6, usegmt=True)}
    device.at(START + 200).flush()
    device.flush()
    stale = key_id(old.public_key().public_bytes_raw())
    assert not [envelope for envelope in server.envelopes if head_of(envelope).key == stale]
