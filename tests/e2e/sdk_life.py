"""A client of `changeling dev`, by nothing but the SDK's wheel and what it asks for: `python sdk_life.py PORT FOLDER`.

Run by `test_wheel` in an environment of its own. Prints what became of it.
"""

import sys
import time
from pathlib import Path

from changeling_client import Client
from changeling_protocol import Survey


def main(port: str, folder: Path) -> None:
    authority = [bytes.fromhex((folder / "authority.pub").read_text())]
    signed = (folder / "survey.signed").read_bytes()
    with Client(
        server=f"http://127.0.0.1:{port}",
        authority=authority,
        max_epsilon=10,
        path=folder / "device" / "store.db",
        development=True,
        background=False,
    ) as client:
        handle = client.join(Survey.from_signed(signed, authority).id, signed=signed)
        recorded, deadline = handle.record("tea"), time.monotonic() + 60
        while not (flushed := client.flush()).sent and time.monotonic() < deadline:
            time.sleep(0.5)
        print(recorded.value, handle.status, flushed.sent > 0, flushed.waiting)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
