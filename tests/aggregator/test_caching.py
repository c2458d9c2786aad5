"""What caches are told of: open results stand a while, closed ones are the reader's own, errors are kept by nobody.

And every answer of every path, asked with every token: what not everybody may see is kept by no shared cache.
"""

from itertools import product

import pytest
from changeling_aggregator.server import ROUTES, ServerSettings, Service
from changeling_aggregator.server.page import ROUTES as PAGE
from changeling_aggregator.store import TokenScope
from changeling_protocol import Calendar, SealingKey, UnixSeconds
from changeling_protocol.wire import KEYS, ErrorAnswer, decode_key_list

from ..protocol.examples import AUTHORITY, PINNED, survey
from .devices import publish_new_key, report
from .serving import OpenSurvey, in_process

START, PERIOD, GRACE = 1_800_000_000, 7200, 36_000
RESULTS = ("histogram", "series", "change?after=0&until=1", "windows?width=1", "series?format=csv")


@pytest.fixture
def asked(store):
    """Four periods of two hours."""
    return OpenSurvey(store, survey(calendar=Calendar(START, PERIOD, 4), grace=GRACE))


def most(answer):
    kind, _, seconds = answer.headers["cache-control"].partition(", max-age=")
    assert kind == "public"
    return int(seconds)


def test_open_results_stand_until_the_next_closing_is_due(asked):
    """A minute at most while late reports may still change them; once all is shown for good, a day. HEAD and 304 have
    the same tag, the same time to keep it and the same `Vary`; a 304 has nothing else of it."""
    with in_process(asked.service) as get:

        def stand():
            return {most(get(asked.path(each))) for each in RESULTS}

        asked.move_to_due(1)
        asked.take(asked.sealed(report(1, 3)))
        assert stand() == {60}
        asked.move_to_due(2)
        asked.now -= 21.5
        assert stand() == {20}
        asked.now += 40
        assert stand() == {0}
        asked.move(4, GRACE + 10**6)
        asked.take(asked.sealed(*(report(period, 3) for period in (2, 3, 4))))
        assert stand() == {86_400}
        for path in map(asked.path, RESULTS):
            whole = get(path)
            tag = {"if-none-match": whole.headers["etag"]}
            head, unchanged, both = get(path, method="HEAD"), get(path, tag), get(path, tag, method="HEAD")
            assert [each.status_code for each in (whole, head, unchanged, both)] == [200, 200, 304, 304]
            assert unchanged.content == b""
            for each, name in product((head, unchanged, both), ("etag", "cache-control", "vary")):
                assert each.headers[name] == whole.headers[name]
            assert head.headers["content-length"] == str(len(whole.content))
            assert whole.headers["vary"] == "accept"


def test_with_nothing_provisional_results_stand_for_an_hour_at_most(store):
    """Where the grace is over before the next closing is due, nothing changes until then."""
    asked = OpenSurvey(store, survey(calendar=Calendar(START, 10 * PERIOD, 4), grace=1000))
    with in_process(asked.service) as get:
        asked.move_to_due(1)
        asked.take(asked.sealed(report(1, 3)))
        asked.now += 2000
        asked.take()
        assert most(get(asked.path("series"))) == 3600
        asked.move_to_due(2)
        asked.now -= 101
        assert most(get(asked.path("series"))) == 100


def test_closed_results_are_the_readers_own_and_errors_are_not_kept(asked):
    """Without a token, of no survey, of nothing, at no route, and before anything is shown: no cache keeps that. An
    error is JSON: a code and a sentence, under the code's status."""
    closed = survey(calendar=Calendar(START, PERIOD, 5))
    with asked.service.store.transaction() as writing:
        writing.add_survey(closed.id, closed.signed_by(AUTHORITY), public=False)
    asked.service.registry.refresh()
    with in_process(asked.service) as get:
        for path, status, method in (
            (asked.path("series"), 409, "GET"),
            (asked.path("series?x=1"), 422, "GET"),
            (f"/v1/surveys/{closed.id.hex()}/series", 401, "GET"),
            ("/v1/surveys/zz", 404, "GET"),
            (f"/v1/surveys/{'00' * 15}/series", 404, "GET"),
            (f"/v1/surveys/{'00' * 16}/nothing", 404, "GET"),
            ("/v1/none", 404, "GET"),
            ("/page/no.js", 404, "GET"),
            ("/v1/fold", 401, "POST"),
            ("/v1/uploads", 405, "GET"),
            ("/v1/uploads", 400, "POST"),
        ):
            answer = get(path, method=method)
            told = ErrorAnswer.decode(answer.content)
            assert (answer.status_code, told.code.status, bool(told.detail)) == (status, status, True), path
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.headers["cache-control"] == "no-store"


def test_no_cache_gives_a_key_out_beyond_its_expiry(store):
    """At every second of two keys' lives a cache may keep what it is given for a minute, or until that key expires; an
    empty list, before and after, is kept by none. Who shows the tag is sent nothing again, until there is another key.
    """
    begins, changes, ends = START, START + 100, START + 200
    with store.transaction() as writing:
        for dates in ((begins, changes), (changes, ends)):
            publish_new_key(writing, *dates)
    now, given = float(START), {}
    with in_process(Service(store, ServerSettings(PINNED, lambda: now))) as get:
        whole = get(KEYS)
        tag = {"if-none-match": whole.headers["etag"]}
        for answer, status in ((get(KEYS, method="HEAD"), 200), (get(KEYS, tag), 304)):
            assert (answer.status_code, answer.content) == (status, b"")
            assert all(answer.headers[name] == whole.headers[name] for name in ("etag", "cache-control"))
        for second in range(begins - 1, ends + 1):
            now = second + 0.5
            answer = get(KEYS)
            expires = [SealingKey.from_signed(each, PINNED).expires for each in decode_key_list(answer.content)]
            given[second] = answer.headers["cache-control"], expires
        now = changes + 1.0
        assert get(KEYS, tag).status_code == 200
    assert given.pop(begins - 1) == given.pop(ends) == ("no-store", [])
    assert given == {
        second: (f"public, max-age={min(60, end - second - 1)}", [end])
        for begin, end in ((begins, changes), (changes, ends))
        for second in range(begin, end)
    }


FORMS = (
    {},
    {"accept": "text/csv"},
    {"accept": "application/msgpack"},
    {"if-none-match": "*"},
    {"cookie": "changeling=none"},
)
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE")


@pytest.mark.heavy
@pytest.mark.parametrize("public", [False, True], ids=["closed", "open"])
def test_what_hangs_on_a_token_is_kept_by_no_shared_cache(store, asked, public):
    """Where one of all tokens, or none, gets another answer, each is `no-store` or private; so is every refusal.

    What caches may share is the same for everybody, and names what of a request it hangs on.
    """
    with store.transaction() as writing:
        for scope in TokenScope:
            writing.add_token(scope.value, scope.value, [scope], UnixSeconds(0.0))
        writing.add_survey(asked.survey.id, asked.survey.signed_by(AUTHORITY), public=public)
    asked.service.registry.refresh()
    asked.move(2, 1000)
    tokens = [{}, *({"authorization": f"Bearer {name}"} for name in (TokenScope.READ, TokenScope.FOLD, "none"))]
    names = {"survey": asked.survey.id.hex(), "edition": "latest", "file": "index.html"}
    paths = sorted({route.path.format(**names) for route in (*ROUTES, *PAGE)})
    paths += [asked.path(what) for what in ("change?after=0&until=1", "windows?width=1")]
    kept = set()
    with in_process(asked.service) as get:
        asked.take(asked.sealed(report(1, 3), report(2, 3)))
        for path, method, form in [*product(paths, METHODS, FORMS[:1]), *product(paths, METHODS[:1], FORMS[1:])]:
            answers = [get(path, {**form, **token}, method) for token in tokens]
            alike = len({(each.status_code, each.content) for each in answers}) == 1
            for each in answers:
                check(each, alike, (path, method, form))
                if each.status_code == 200:
                    kept.add(each.headers.get("cache-control", "").partition(",")[0])
    assert {"no-store", "public" if public else "private"} <= kept


def check(answer, alike, asked):
    kept = answer.headers.get("cache-control", "")
    shared = answer.request.method in ("GET", "HEAD") and kept not in ("no-store", "private, no-cache")
    if answer.status_code >= 400:
        assert kept == "no-store", asked
    if shared and answer.status_code != 503:
        assert alike, (asked, kept)
        is_estimate = "/surveys/" in (path := answer.request.url.path) and path.count("/") == 4
        if "accept" in str(asked) and "etag" in answer.headers and is_estimate:
            assert answer.headers["vary"] == "accept", asked
