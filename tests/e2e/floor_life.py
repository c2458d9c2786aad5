"""A small but whole life of a client, by nothing but the wheel and what it asks for: `python floor_life.py FOLDER`.

Run by `test_floors` in environments of their own. Prints what became of it, in JSON.
"""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

from changeling_client import Client, Status
from changeling_client.testing import FakeServer, make_survey

SURVEY = make_survey(answers=["tea", "coffee"], periods=4, epsilon=3)


def client_of(server: FakeServer) -> Client:
    return Client(
        server=server.url,
        authority=server.authority,
        max_epsilon=20,
        app="org.example.tea",
        key=bytes(range(32)),
        background=False,
        transport=server.transport,
        clock=server.clock,
    )


def main(folder: Path) -> None:
    for place in ("HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        os.environ[place] = str(folder / place)
    server, told = FakeServer(), []
    server.publish(SURVEY)
    server.go_offline()
    with client_of(server) as client:
        survey = client.join(SURVEY.id)
        told += [survey.record("tea").value, survey.status is Status.ASKED, client.flush().sent]
        server.recover()
        client.flush()
        told += [survey.status is Status.JOINED, survey.record("coffee").value]
    server.clock.advance(days=4)
    with client_of(server) as client:
        told += [client.flush().sent, client.ledger().spent == SURVEY.epsilon, len(server.reports)]
        client.leave(SURVEY.id)
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as real:  # which answers 501 to all
        Thread(target=real.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{real.server_port}"
        with Client(server=url, authority=server.authority, max_epsilon=1, path=folder / "s.db") as shipped:
            shipped.join(SURVEY.id)  # as an app makes it: with a thread, and connections of its own
            told += [shipped.flush().trouble.split()[-1], shipped.ledger().spent == 0]
        real.shutdown()
    stores = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.suffix == ".db"]
    print(json.dumps({"told": told, "stores": sorted(stores)}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
