"""What strangers write as they like: into columns, bodies, framing and requests. Nothing but declared errors comes of
it, no server fails, and what others said counts as if it were not there."""

import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest
from changeling_aggregator.fold import fold
from changeling_aggregator.store import Store, TokenScope
from changeling_aggregator.testing import PLANS, honest, hostile
from changeling_protocol import Calendar, seal
from changeling_protocol.wire import UPLOADS

from ..protocol.examples import survey
from .devices import Log, body, envelope, report
from .hostile import connected, resident
from .serving import TOKEN, ServerHere, ServerProcess, eventually

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_what_others_said_counts_as_if_nobody_lied(tmp_path, plan):
    """Nothing stops the fold; no honest closing or report is lost or counted twice; one upload adds at most one to a
    count; and it all comes to the same however the log is cut into batches."""
    chance, asked = Random(5), survey(plan)
    log, seen = [], []
    for _ in range(20):
        plaintext, ids = honest(plan, chance)
        log.append((True, plaintext))
        seen += ids
        log += [(False, hostile(plan, seen, chance)) for _ in range(3)]
    ends = asked.calendar.time(asked.calendar.periods)

    def folded(name, batch, *, with_lies=True):
        kept = Log.of(Store.open(tmp_path / name), asked)
        kept.append(ends, *(seal(each, asked.id, kept.key) for truly, each in log if truly or with_lies))
        fold(kept.store, ends, batch=batch)
        return kept

    truth, whole, cut = folded("truth", 1000, with_lies=False), folded("whole", 1000), folded("cut", 7)
    assert (whole.tallies(), whole.attendance(), whole.refused()) == (cut.tallies(), cut.attendance(), cut.refused())
    lies = sum(not truly for truly, _ in log)
    for node, (reports, _) in truth.tallies().items():
        assert reports <= whole.tallies()[node][0] <= reports + lies
    for closing, counts in truth.attendance().items():
        assert all(a <= b <= a + lies for a, b in zip(counts, whole.attendance()[closing], strict=True))
    for each in (truth, whole, cut):
        each.store.close()


@pytest.mark.heavy
@pytest.mark.skipif(sys.platform != "linux", reason="atheris is for Linux")
@pytest.mark.timeout(600)
def test_only_declared_errors_come_of_mutated_bodies_and_tallies_are_right():
    """With a fixed seed: what can be read is counted as a slow count of its own comes to."""
    runs = 60_000
    command = [sys.executable, "-m", "tests.aggregator.parsing", f"{runs}", "1"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-20_000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["read"].get("upload", 0) > runs // 100
    assert found["reports"] > runs // 200


def mutated(honest_bodies, runs):
    chance = Random(8)
    for _ in range(runs):
        changed = bytearray(chance.choice(honest_bodies))
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(len(changed))
            changed[at : at + chance.choice([0, 1, 1, 8])] = chance.randbytes(chance.choice([0, 1, 1, 8]))
        yield bytes(changed)


@pytest.mark.heavy
def test_mutated_uploads_fail_no_server_and_change_no_tally(tmp_path):
    """Four thousand of them over HTTP: no 500, no more memory, and what was counted stays."""
    with ServerProcess(tmp_path, "--movable-clock") as server:
        server.move_clock(1_800_000_000)
        asked = server.new_survey()
        server.move_clock(asked.calendar.time(1) + 16)
        bodies = [body(*[envelope(asked, server.key, [report(1)]) for _ in range(3)]) for _ in range(4)]
        for each in bodies:
            server.http.post(UPLOADS, content=each).raise_for_status()
        counted, before = server.reports(asked), resident(server)
        for each in mutated(bodies, 4000):
            assert server.http.post(UPLOADS, content=each).status_code < 500
        assert server.reports(asked) == counted
        assert resident(server) - before < 64 * 2**20


CONNECTIONS = 240
OF_AN_APP = {"authorization": "Bearer of an app"}
ODD = (
    *("expect: 100-continue", "transfer-encoding: chunked", "Transfer-Encoding: identity"),
    *("transfer-encoding: gzip, chunked", "transfer-encoding:\tchunked", "transfer-encoding : chunked"),
    *("transfer-encoding: chunked\r\ntransfer-encoding: identity", "content-length: 0", "content-length: +10"),
    *("content-length: 10, 10", "content-length:", "content-length : 3", "content-length: 0x10"),
    *("content-length: 99999999999999999999", "connection: close", "connection: upgrade\r\nupgrade: h2c"),
    *("x: a\r\n b", "x: a\r\n\tcontent-length: 3", "x: a\nconnection: close", "x: \x00", "x: " + "a" * 40_000),
    *(": none", "no colon", "authorization: Bearer \xff", "te: trailers", "x-http-method-override: GET"),
    *("authorization: Bearer of an app\r\nauthorization: Bearer none", "x-forwarded-proto: \xff"),
    "x-forwarded-for: [::1]:80, \xff",
)
TARGETS = (*[UPLOADS] * 6, *("/v1/uploads?x=1", "//v1/uploads", "/v1/%75ploads", "http://there/v1/uploads", "*"))
METHODS = (*["POST"] * 9, *("post", "GET", "PUT", "OPTIONS", "CONNECT", "POSTX"))
VERSIONS = (*["HTTP/1.1"] * 9, *("HTTP/1.0", "HTTP/2.0", "http/1.1", "HTTP/1.1 "))


def odd_request(chance, uploads):
    content = chance.choice(uploads)
    stated = len(content) + chance.choice((*[0] * 9, 1, 7, -1, -20))
    headers = ["host: here", "authorization: Bearer of an app"]
    if chance.random() < 0.1:
        headers.append("transfer-encoding: chunked")
        cut = chance.randrange(1, len(content))
        end = chance.choice((b"0\r\n\r\n", b"0\r\nx: y\r\n\r\n", b"0;a=b\r\n\r\n", b"0\n\n", b"-1\r\n"))
        content = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (content[:cut], content[cut:])) + end
    else:
        headers.append(f"content-length: {stated}")
    headers += [chance.choice(ODD) for _ in range(chance.choice((0, 0, 0, 1, 1, 2)))]
    chance.shuffle(headers)
    first = f"{chance.choice(METHODS)} {chance.choice(TARGETS)} {chance.choice(VERSIONS)}"
    return chance.choice(("\r\n",) * 9 + ("\n",)).join([first, *headers, "", ""]).encode("latin-1") + content


def told_of_odd_requests(server, seed, uploads):
    """All that is answered on a connection, whose requests are sent in pieces."""
    chance = Random(seed)
    whole = b"".join(odd_request(chance, uploads) for _ in range(chance.choice((1, 1, 2, 3))))
    cuts = sorted(chance.randrange(1, len(whole)) for _ in range(chance.choice((0, 0, 1, 4))))
    heard = b""
    with connected(server) as connection:
        connection.settimeout(0.3)
        try:
            for begin, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
                connection.sendall(whole[begin:end])
            while piece := connection.recv(65_536):
                heard += piece
        except (TimeoutError, ConnectionError):
            pass
    return heard


@pytest.mark.heavy
@pytest.mark.parametrize("guarded", [False, True])
def test_no_framing_fails_the_server_or_smuggles_an_upload(tmp_path, guarded):
    """Odd heads, lengths that lie, chunks, pipelines and pieces: no 500, and what is in the log was sent so."""
    proxies = ["127.0.0.1"] if guarded else []
    with ServerHere(tmp_path, proxies=proxies, uploads_need_token=guarded) as server:
        server.add_token("of an app", TokenScope.UPLOAD)
        assert eventually(lambda: server.http.post(UPLOADS, headers=OF_AN_APP).status_code, 400)
        server.move_clock(1_800_000_000)
        asked, key = server.new_survey(), server.key
        server.move_clock(asked.calendar.time(1) + 16)
        server.fold()
        sent = [envelope(asked, key, [report(1)]) for _ in range(23)]
        uploads = [body(*each) for each in (sent[:1], sent[1:3], sent[3:])]
        with ThreadPoolExecutor(16) as pool:
            told = [*pool.map(lambda seed: told_of_odd_requests(server, seed, uploads), range(CONNECTIONS))]
        statuses = {int(status) for each in told for status in re.findall(rb"(?m)^HTTP/1.1 (\d+) ", each)}
        assert statuses <= {100, 200, 400, 401, 403, 404, 405, 413, 422}
        taken = sum(each.count(b"\x81\xa7refused\x90") for each in told)
        assert taken > CONNECTIONS // 20
        store = Store.open(tmp_path / "server.db")
        with store.view() as view:
            kept, appended = [each.body for each in view.kept_requests()], sum(view.log_state()[2:4])
        store.close()
        assert {*kept} <= {*uploads}
        assert taken <= appended <= 2 * CONNECTIONS
        assert server.http.get("/healthz").status_code == 200


SECONDS = 20
REFUSING = ("400", "401", "403", "404", "405", "406", "409", "413", "415", "422", "428", "429", "5xx")
"""What an answer to a body that is none may be; 413 as well, as nothing is read of one that is too long."""


@pytest.mark.heavy
@pytest.mark.timeout(15 * SECONDS)
def test_whatever_is_asked_no_answer_fails_and_no_tally_changes(tmp_path):
    """Schemathesis, with a fixed seed and for a bounded time, over the interface as the OpenAPI document says it: no
    500, every answer as the document says, no more memory, the same tallies."""
    now = int(time.time())
    log = Log.of(Store.open(tmp_path / "server.db"), survey(calendar=Calendar(now - 800, 60, 10), grace=100))
    for period in range(1, 6):
        for symbol in range(20):
            log.append_reports(log.survey.calendar.time(period) + 1, [report(period, symbol % 4)])
    fold(log.store, now)
    tallies = log.tallies()
    log.store.close()
    settings = tmp_path / "schemathesis.toml"
    settings.write_text(f"[checks]\nnegative_data_rejection.expected-statuses = {[*REFUSING]}\n")
    with ServerProcess(tmp_path) as server:
        server.http.get(f"/v1/surveys/{log.survey.id.hex()}/series").raise_for_status()
        before = resident(server)
        hooks = {"SCHEMATHESIS_HOOKS": "tests.aggregator.schemathesis_hooks", "SURVEY": log.survey.id.hex()}
        done = subprocess.run(
            [
                *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(settings)),
                *("run", f"{server.url}/openapi.json"),
                *("--seed", "1", "--generation-database", "none", "--max-examples", "25", "--max-time", str(SECONDS)),
                *("--suppress-health-check", "too_slow", "--request-timeout", "100"),  # others have the machine, too
                *("--header", f"Authorization: Bearer {TOKEN}", "--continue-on-failure", "--no-color"),
                *("--exclude-checks", "positive_data_acceptance"),  # no schema makes a signature
            ],
            cwd=ROOT,
            env={**os.environ, **hooks},
            capture_output=True,
            text=True,
        )
        grown = resident(server) - before
        server.fold()
    assert done.returncode == 0, done.stdout + done.stderr
    assert grown < 64 * 2**20
    log = Log(Store.open(tmp_path / "server.db"), log.survey, log.key, log.stream)
    assert log.tallies() == tallies
    log.store.close()
