"""A small but whole life of a client, by nothing but the wheel and what it asks for: `python floor_life.py FOLDER`.

Run by `test_floors` in environments of their own. Prints what became of it, in JSON.
"""

import json
import os
import sys
from email.utils import formatdate
from pathlib import Path

import httpx
from changeling_client import Client, Status
from changeling_protocol import (
    AtMost,
    Calendar,
    Group,
    KaryResponse,
    MutationSpace,
    Odds,
    ReleasePlan,
    SealingKey,
    SignedSubset,
    StateSpace,
    Survey,
    Track,
    decode_upload,
    open_envelope,
)
from changeling_protocol.wire import decode_upload_request, encode_acknowledgement, encode_key_list
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

AUTHORITY = Ed25519PrivateKey.from_private_bytes(bytes(32))
PINNED = [AUTHORITY.public_key().public_bytes_raw()]
SEALS = X25519PrivateKey.from_private_bytes(bytes(range(32)))
START = 1_800_000_000
TRACKS = (
    Track(1, KaryResponse(StateSpace(2), Odds(3, 1)), 0, 4),
    Track(2, SignedSubset(MutationSpace(2), Odds(3, 1)), 0, 4),
)
SURVEY = Survey.at_cost(
    question="What do you drink?",
    answers=("tea", "coffee"),
    calendar=Calendar(START, 60, 4),
    constraint=AtMost(3),
    plan=ReleasePlan((Group(TRACKS),)),
    skew=5,
    spread=10,
    grace=3600,
    minimum=1,
)


class Life:
    """A clock, and a server that may be away."""

    def __init__(self) -> None:
        self.now = float(START)
        self.away = True
        self.plaintexts: list[bytes] = []

    def serve(self, request: httpx.Request) -> httpx.Response:
        if self.away:
            raise httpx.ConnectError("no way to the server")
        date = {"date": formatdate(self.now, usegmt=True)}
        if request.method == "POST":
            envelopes = decode_upload_request(request.content)
            self.plaintexts += [open_envelope(envelope, SEALS) for envelope in envelopes]
            return httpx.Response(200, content=encode_acknowledgement({}), headers=date)
        if request.url.path.endswith("/keys"):
            key = SealingKey(SEALS.public_key().public_bytes_raw(), START, START + 10**6)
            return httpx.Response(200, content=encode_key_list([key.signed_by(AUTHORITY)]), headers=date)
        return httpx.Response(200, content=SURVEY.signed_by(AUTHORITY), headers=date)

    def client(self) -> Client:
        return Client(
            server="https://statistics.example",
            authority=PINNED,
            max_epsilon=20,
            app="org.example.tea",
            key=bytes(range(32)),
            background=False,
            transport=httpx.MockTransport(self.serve),
            clock=lambda: self.now,
        )


def main(folder: Path) -> None:
    for place in ("HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        os.environ[place] = str(folder / place)
    life, told = Life(), []
    with life.client() as client:
        survey = client.join(SURVEY.id)
        told += [survey.record("tea").value, survey.status is Status.ASKED, client.flush().sent]
        life.away = False
        life.now = START + 30
        client.flush()
        told += [survey.status is Status.JOINED, survey.record("coffee").value]
    life.now = START + 300
    with life.client() as client:
        told += [client.flush().sent, client.ledger().spent == SURVEY.epsilon]
        client.leave(SURVEY.id)
    with Client(server="https://statistics.example", authority=PINNED, max_epsilon=1, path=folder / "s.db") as shipped:
        told.append(shipped.ledger().spent == 0)  # as an app makes it: with a thread, and connections of its own
    (columns,) = map(decode_upload, life.plaintexts)
    stores = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.suffix in (".db", ".sqlite")]
    print(
        json.dumps({"told": told, "span": columns.span.end, "columns": len(columns.symbols), "stores": sorted(stores)})
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
