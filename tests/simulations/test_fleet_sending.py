"""The sender of a fleet: it waits where it is asked to, and sends again what was not answered."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from changeling_protocol import Refusal
from changeling_protocol.wire import ErrorAnswer, ErrorCode, encode_acknowledgement
from changeling_simulations.fleet import SendingFailed, send

TAKEN = encode_acknowledgement({})
Answer = Callable[[int, bytes], bytes | None]
"""What is answered to a request, by its number from 0 on and its body; None closes the connection without a word."""


def answer(content: bytes, status: str = "200 OK", *headers: str) -> bytes:
    head = "\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {len(content)}", *headers])
    return f"{head}\r\n\r\n".encode() + content


@contextmanager
def serving(answers: Answer) -> Iterator[tuple[str, list[tuple[float, bytes]]]]:
    """A server on loopback; gives its URL, and each request that came with the time when it did."""
    came: list[tuple[float, bytes]] = []
    loop = asyncio.new_event_loop()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
                came.append((loop.time(), await reader.readexactly(length)))
                said = answers(len(came) - 1, came[-1][1])
                if said is None:
                    break
                writer.write(said)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = loop.run_until_complete(asyncio.start_server(serve, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", came
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.run_until_complete(server.wait_closed())
        loop.close()


def requests(count: int, apart: float = 0.0) -> Iterator[tuple[float, bytes]]:
    return ((apart * number, b"%d" % number) for number in range(count))


def test_all_requests_are_sent_once_and_refusals_are_added_up():
    """By whichever connection; in their order on one of them."""
    refusing = encode_acknowledgement({0: Refusal.MALFORMED})
    with serving(lambda number, _: answer(refusing if number % 10 == 0 else TAKEN)) as (url, came):
        sent = send(requests(100), url, connections=7)
        alone = len(came)
        send(requests(20), url, connections=1)
    assert (sent.requests, sent.unsure, sent.turned_away, alone) == (100, 0, 0, 100)
    assert sent.told == {"malformed": 10}
    assert 0 < sent.latency(0.5) <= sent.latency(0.99)
    assert sorted(body for _, body in came[:100]) == sorted(b"%d" % number for number in range(100))
    assert [body for _, body in came[100:]] == [b"%d" % number for number in range(20)]


def test_a_server_that_asks_for_patience_is_given_it_by_all_connections():
    """Nothing is sent for the second that it asked for, and then all of it is taken."""
    turned = [answer(b"", "503 Service Unavailable", "Retry-After: 1"), answer(b"", "429 Too Many", "Retry-After: 0")]
    with serving(lambda number, _: turned[number] if number < 2 else answer(TAKEN)) as (url, came):
        sent = send(requests(3), url, connections=1)
    assert (sent.requests, sent.turned_away) == (3, 2)
    assert came[1][0] - came[0][0] >= 0.99


def test_what_was_not_answered_is_sent_again_and_is_unsure():
    """It may be there twice."""
    with serving(lambda number, _: None if number == 1 else answer(TAKEN)) as (url, came):
        sent = send(requests(3), url, connections=1)
    assert (sent.requests, sent.unsure) == (3, 1)
    assert sorted(body for _, body in came) == [b"0", b"1", b"1", b"2"]


def test_requests_are_sent_when_they_are_due():
    """Not before; here their seconds take a tenth of one."""
    with serving(lambda *_: answer(TAKEN)) as (url, came):
        begin = time.monotonic()
        send(requests(5, apart=1.0), url, connections=2, seconds_of_one=0.1)
    assert all(at - begin >= 0.1 * number for number, (at, _) in enumerate(came))


def test_a_server_that_refuses_all_is_left_alone():
    """With its own words."""
    said = ErrorAnswer(ErrorCode.UNAUTHORIZED, "this needs a token").encode()
    with (
        serving(lambda *_: answer(said, "401 Unauthorized")) as (url, came),
        pytest.raises(SendingFailed, match="this needs a token"),
    ):
        send(requests(50), url, connections=2)
    assert len(came) <= 2
