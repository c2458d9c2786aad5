"""Whatever a server answers, the app sees a ClientError or what `flush` returns, and every record stands."""

import random
from contextlib import suppress

import httpx
import pytest
from changeling_client import ClientError
from changeling_protocol import encode, signed

from ..protocol.examples import AUTHORITY
from .device import PLAIN, PRIVATE, START, Clock, FakeServer, client, signed_key

HEADERS = [
    {},
    {"date": "Thu, 01 Jan 99999999 00:00:00 GMT"},
    {"date": "Mon, 01 Jan 0001 00:00:00 +2359"},
    {"date": "Fri, 31 Dec 9999 23:59:59 -2359"},
    {"date": "Mon, 01 Jan 2001 00:00:00 +999999999999"},
    {"retry-after": "9" * 5000},
    {"retry-after": "-1"},
    {"retry-after": "Fri, 31 Dec 9999 23:59:59 -2359"},
    {"content-encoding": "gzip"},
]
ERRORS = [RuntimeError("no answer is in it"), httpx.ReadTimeout("slow"), KeyError("hook"), RecursionError()]


def body(chance: random.Random) -> bytes:
    """Bytes, nested lists, arrays that lie about their length, keys and acknowledgements that are nearly right."""
    altered = bytearray(PLAIN.signed_by(AUTHORITY))
    altered[chance.randrange(len(altered))] ^= 1 << chance.randrange(8)
    odd_key = signed("sealing-key", {"public": bytes(32), "begins": 0, "expires": 2**32}, AUTHORITY)
    return chance.choice(
        [
            chance.randbytes(chance.randrange(300)),
            b"\x91" * 5000 + b"\0",
            b"\xdd\xff\xff\xff\xff" + bytes(200),
            bytes(altered),
            encode({"keys": [b"", odd_key, chance.randbytes(40), signed_key(PRIVATE)]}),
            encode({"refused": [[chance.randrange(-1, 3), chance.choice(["closed", "unknown-key", "?"])]]}),
        ]
    )


@pytest.mark.parametrize("seed", range(40))
def test_rubbish_from_a_server_is_trouble_and_nothing_else(tmp_path, seed):
    """On joining, and on flushing at a time when nodes are due."""
    chance, server, clock = random.Random(seed), FakeServer(PLAIN), Clock()

    def reply(_: httpx.Request) -> httpx.Response | None:
        match chance.randrange(8):
            case 0:
                return None
            case 1:
                raise chance.choice(ERRORS)
        status = chance.choice([200, 200, 200, 204, 301, 404, 503, 999])
        return httpx.Response(status, content=body(chance), headers=chance.choice(HEADERS))

    with client(tmp_path, server, clock) as device:
        server.reply = reply
        for _ in range(3):
            with suppress(ClientError):
                device.join(PLAIN.id)
        server.reply = lambda _: None
        handle = device.join(PLAIN.id, signed=server.signed[PLAIN.id.hex()])
        handle.record("tea")
        server.reply = reply
        for _ in range(4):
            clock.now = START + chance.randrange(480)  # before the end, when the answer would go
            assert "tea" not in repr(device.flush())
            assert handle.answer() == "tea"
