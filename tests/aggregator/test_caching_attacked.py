"""Every answer of every path, asked with every token: what not everybody may see is kept by no cache that is shared."""

from itertools import product
from typing import Any

import httpx
import pytest
from changeling_aggregator.server import ROUTES, ServerSettings, Service
from changeling_aggregator.server.page import ROUTES as PAGE
from changeling_aggregator.store import Store, TokenScope
from changeling_aggregator.testing import sql
from changeling_protocol import Calendar, UnixSeconds

from ..protocol.examples import PINNED, survey
from .devices import Log, report
from .serving import in_process

START, PERIOD = 1_800_000_000, 7200
FORMS: tuple[dict[str, str], ...] = (
    {},
    {"accept": "text/csv"},
    {"accept": "application/msgpack"},
    {"if-none-match": "*"},
    {"cookie": "changeling=none"},
)
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH")


@pytest.mark.parametrize("public", [False, True], ids=["closed", "open"])
def test_what_hangs_on_a_token_is_kept_by_no_shared_cache(store: Store, public: bool) -> None:
    """Where one of all tokens, or none, gets another answer, each is `no-store` or private; so is every refusal.

    What caches may share is the same for everybody, and names what of a request it hangs on.
    """
    log = Log.of(store, survey(calendar=Calendar(START, PERIOD, 4), grace=36_000))
    sql(store, "UPDATE surveys SET public = :public", public=public)
    with store.transaction() as writing:
        for scope in TokenScope:
            writing.add_token(scope.value, scope.value, [scope], UnixSeconds(0.0))
    now = UnixSeconds(START + 2.0 * PERIOD + 1000)
    service = Service(store, ServerSettings(PINNED, lambda: now))
    log.append_reports(now, [report(1, 3), report(2, 3)])
    shown: list[dict[str, str]] = [
        {},
        *({"authorization": f"Bearer {name}"} for name in (TokenScope.READ, TokenScope.FOLD, "none")),
    ]
    paths = sorted(
        {
            route.path.format(survey=log.survey.id.hex(), edition="latest", file="index.html")
            for route in (*ROUTES, *PAGE)
        }
    )
    paths += [f"/v1/surveys/{log.survey.id.hex()}/{what}" for what in ("change?after=0&until=1", "windows?width=1")]
    asked = [*product(paths, METHODS, FORMS[:1]), *product(paths, METHODS[:1], FORMS[1:])]
    kept = set()
    with in_process(service) as get:
        service.folding.fold_now()
        for path, method, form in asked:
            answers = [get(path, {**form, **token}, method) for token in shown]
            alike = len({(each.status_code, each.content) for each in answers}) == 1
            for each in answers:
                _check(each, alike, (path, method, form))
                if each.status_code == 200:
                    kept.add(each.headers.get("cache-control", "").partition(",")[0])
    assert {"no-store", "public" if public else "private"} <= kept


def _check(answer: httpx.Response, alike: bool, asked: Any) -> None:
    kept = answer.headers.get("cache-control", "")
    shared = answer.request.method in ("GET", "HEAD") and kept not in ("no-store", "private, no-cache")
    if answer.status_code >= 400:
        assert kept == "no-store", asked
    if shared and answer.status_code != 503:
        assert alike, (asked, kept)
        is_estimate = "/surveys/" in (path := answer.request.url.path) and path.count("/") == 4
        if "accept" in str(asked) and "etag" in answer.headers and is_estimate:
            assert answer.headers["vary"] == "accept", asked
