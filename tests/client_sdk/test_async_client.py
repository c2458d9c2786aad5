"""The client for event loops: the loop never waits, and whatever is cancelled loses nothing and holds nothing."""

import asyncio
import gc
import inspect
import sqlite3
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import wraps

import pytest
from changeling_client import AsyncClient, AsyncSurveyHandle, Client, ClientClosed, Recorded, Status, SurveyHandle
from changeling_client.testing import FakeServer, make_survey

from .device import ended, forked

SURVEY = make_survey(answers=("tea", "coffee"), periods=10)
SOON = 5.0
"""Seconds in which whatever does not wait for a network is long done, on a busy machine too."""


def options(folder, server, **more):
    usual = {
        "path": folder / "store.db",
        "server": server.url,
        "authority": server.authority,
        "max_epsilon": 10_000,
        "strict": True,
        "background": False,
        "transport": server.transport,
        "clock": server.clock,
    }
    return {**usual, **more}


@pytest.fixture
def server():
    server = FakeServer()
    server.publish(SURVEY)
    return server


def said(server):
    return [report.says for report in server.reports]


def run(coroutine):
    """Runs it with the loop's checks on; nothing may be left over that the loop, or Python, complains of."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = asyncio.run(coroutine, debug=True)
        gc.collect()
    return result


def looped(test):
    """A test that is a coroutine, run so."""
    return wraps(test)(lambda *args, **fixtures: run(test(*args, **fixtures)))


@pytest.fixture(autouse=True)
def no_complaints(caplog):
    """Of tasks that were destroyed, or outcomes that were never looked at."""
    yield
    complaints = [each.getMessage() for each in caplog.records if each.name == "asyncio"]
    assert not [each for each in complaints if "never" in each or "destroyed" in each or "exception" in each]


@looped
async def test_the_calls_are_those_of_the_client(tmp_path, server):
    """Joined, recorded, reported, looked at, left."""
    async with AsyncClient(**options(tmp_path, server)) as client:
        survey = await client.join(SURVEY.id)
        assert (await survey.status(), await survey.survey()) == (Status.ASKED, None)
        assert await survey.record("tea") is Recorded.PENDING
        await client.flush()
        assert (await survey.status(), await survey.reason()) == (Status.JOINED, "")
        assert await survey.answer() == "tea"
        server.clock.advance(days=1)
        flushed = await client.flush()
        assert (flushed.sent, flushed.trouble) == (1, None)
        assert (await survey.ledger()).answered_period == 1
        assert (await client.ledger()).spent == SURVEY.epsilon
        assert (await client.explain(SURVEY.id)).survey == SURVEY
        assert await survey.retract() is Recorded.COUNTED
        with pytest.raises(ValueError, match="no answer of the survey"):
            await survey.record("milk")
        await client.leave(SURVEY.id)
        assert await survey.status() is Status.LEFT
        await client.set_consent(False)
        assert not await client.consent()
    assert said(server) == ["from no answer to tea"]


def test_the_two_clients_have_the_same_arguments_and_calls():
    """An argument or a call that one of them lacked would be missed by some app."""

    def arguments(call):
        return [(each.name, each.kind, each.default) for each in inspect.signature(call).parameters.values()]

    def calls(kind):
        return {name for name in vars(kind) if not name.startswith("_")} - {"close", "aclose"}

    assert calls(Client) == calls(AsyncClient)
    assert calls(SurveyHandle) == calls(AsyncSurveyHandle)
    assert arguments(Client) == arguments(AsyncClient)
    for sync, other in ((Client, AsyncClient), (SurveyHandle, AsyncSurveyHandle)):
        for name in calls(sync):
            if inspect.isfunction(vars(sync)[name]):
                assert arguments(vars(sync)[name]) == arguments(vars(other)[name])


def test_it_reports_by_itself_while_a_loop_runs_and_in_the_next_loop_too(tmp_path, server):
    """Nobody flushes. A loop that ends without `aclose` leaves nothing behind that complains."""
    client = AsyncClient(**options(tmp_path, server, background=True))

    async def joined():
        survey = await client.join(SURVEY.id)
        await survey.record("tea")
        while await survey.status() is not Status.JOINED:
            await asyncio.sleep(0.01)

    async def reported():
        await client.join(SURVEY.id)  # as an app does when it begins; a clock that leaps a day wakes nobody by itself
        while not server.reports:
            await asyncio.sleep(0.01)
        await client.aclose()

    run(asyncio.wait_for(joined(), 10 * SOON))
    server.clock.advance(days=1)
    run(asyncio.wait_for(reported(), 10 * SOON))
    assert said(server) == ["from no answer to tea"]


@pytest.mark.timed
def test_a_flush_that_hangs_holds_up_neither_the_loop_nor_its_end(tmp_path, server):
    """The server does not answer; `wait_for` gives up in time, and closing ends the flush."""
    hanging, answer = threading.Event(), server._answer
    server._answer = lambda request: hanging.wait(SOON * 4) and answer(request)

    async def lived():
        async with AsyncClient(**options(tmp_path, server)) as client:
            await (await client.join(SURVEY.id)).record("tea")
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(client.flush(), 0.2)
            before = time.monotonic()
        assert time.monotonic() - before < SOON

    began = time.monotonic()
    run(lived())
    assert time.monotonic() - began < 2 * SOON
    hanging.set()


class CancelledAt:
    """Awaits a coroutine, and cancels the task that does so at its n-th suspension. `left`: how many were left then."""

    def __init__(self, coroutine, n):
        self._coroutine, self.left = coroutine, n

    def __await__(self):
        steps, send = self._coroutine.__await__(), (None, None)
        while True:
            value, error = send
            try:
                waited = steps.send(value) if error is None else steps.throw(error)
            except StopIteration as done:
                return done.value
            self.left -= 1
            if self.left == 0:
                asyncio.current_task().cancel()
            try:
                send = (yield waited), None
            except BaseException as thrown:
                send = None, thrown


async def _lived(folder, server, seen):
    """All calls, one after another. seen: what each record returned that did return."""
    async with AsyncClient(**options(folder, server)) as client:
        survey = await client.join(SURVEY.id)
        for answer in ("tea", "coffee"):
            seen.append((answer, await survey.record(answer)))
            await client.flush()
            server.clock.advance(days=1)
        await client.flush()
        await client.ledger()


@pytest.mark.timed
@pytest.mark.heavy
def test_cancelled_at_any_await_nothing_is_lost_and_nothing_is_held(tmp_path):
    """At every suspension in turn: what was recorded is there, and the next client goes on at once and reports it."""
    cancelled = at = 0
    while cancelled == at:
        at += 1
        server, seen = FakeServer(), []
        server.publish(SURVEY)
        folder = tmp_path / f"{at}"
        folder.mkdir()

        async def tried(folder=folder, server=server, seen=seen, at=at):
            try:
                await asyncio.ensure_future(CancelledAt(_lived(folder, server, seen), at))
            except asyncio.CancelledError:
                return True
            return False

        cancelled += run(tried())
        with Client(**options(folder, server)) as client:
            began = time.monotonic()
            survey = client.join(SURVEY.id)
            if seen:
                assert survey.answer() in [answer for answer, _ in seen] + ["coffee"] * (len(seen) == 1)
            assert client.flush().trouble is None
            server.clock.advance(days=2)
            assert client.flush().waiting == 0
            assert time.monotonic() - began < SOON
        words = said(server)
        if seen:
            assert any("to tea" in each or "to coffee" in each for each in words)
        nodes = [report.node for report in server.reports]
        assert len({*nodes}) == len(nodes), "a node was answered twice"
    assert at > 10


@looped
async def test_closed_it_says_so(tmp_path, server):
    """Also one that was never opened."""
    client = AsyncClient(**options(tmp_path, server, background=True))
    survey = await client.join(SURVEY.id)
    await client.aclose()
    await client.aclose()
    for call in (client.flush, client.ledger, lambda: survey.record("tea")):
        with pytest.raises(ClientClosed):
            await call()
    unused = AsyncClient(**options(tmp_path, server))
    await unused.aclose()
    with pytest.raises(ClientClosed):
        await unused.ledger()


@looped
async def test_the_loop_and_the_apps_own_calls_wait_for_no_disk(tmp_path, server):
    """With an executor of one thread, and a store that another process holds, the loop turns and the app still looks
    names up at once; then each of many tasks' records is done, of an entry of its own."""
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    async with AsyncClient(**options(tmp_path, server)) as client:
        survey = await client.join(SURVEY.id, entries=64, signed=server.signed(SURVEY))
        with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            records = [asyncio.create_task(survey.record("tea", entry=entry)) for entry in range(64)]
            await asyncio.sleep(0.05)
            await loop.getaddrinfo("127.0.0.1", 80)
            assert not any(task.done() for task in records)
            other.execute("ROLLBACK")
        assert set(await asyncio.gather(*records)) == {Recorded.COUNTED}
        assert {await survey.answer(entry) for entry in range(64)} == {"tea"}


@pytest.mark.heavy
def test_a_client_goes_on_in_the_next_loop_and_in_a_forked_child(tmp_path, server):
    """In each, records are kept and a flush reports; of a child that is forked between two loops as well."""
    client = AsyncClient(**options(tmp_path, server))

    async def records(answer):
        survey = await client.join(SURVEY.id)
        await client.flush()
        assert await survey.record(answer) is Recorded.COUNTED
        server.clock.advance(days=1)
        assert (await client.flush()).sent == 1

    run(records("tea"))
    assert ended(forked(lambda: asyncio.run(records("coffee")))) == 0
    server.clock.advance(days=1)
    run(records("tea"))
    run(client.aclose())
    assert said(server)[0] == "from no answer to tea"
