"""The four journeys of data through the house, walked by execution: which files one run really passes, in order.

    python -m benchmarks.journeys           prints them
    python -m benchmarks.journeys --write   writes them into docs/architecture.md
    python -m benchmarks.journeys --check   fails where that page says something else

A file is passed where one of its functions is called. What runs as a module is imported does not count, and neither
does what stands for the other side of a journey (a fake server, a clock), with all that it calls.
"""

import ast
import asyncio
import inspect
import io
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/architecture.md"
WINGS = tuple(str(ROOT / folder) + "/" for folder in ("protocol", "client_sdk", "aggregator", "simulations"))
BEGIN, END = "<!-- journeys: written by `python -m benchmarks.journeys --write` -->", "<!-- end of journeys -->"
OTHER_SIDE = "/testing.py"
"""The file of a fake server and a clock."""
BESIDE = "/editions.py"
"""What a server does every second beside what it is asked."""


class Walk:
    """Notes the files of the house whose functions are called while it is on, in threads begun since it was made."""

    def __init__(self) -> None:
        self.files: dict[str, list[str]] = {}
        self._on = False

    @contextmanager
    def on(self) -> Iterator[None]:
        """Notes what is called until the context ends."""
        self._on = True
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)
            self._on = False

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Takes what `sys.setprofile` tells."""
        if not self._on or event != "call":
            return
        name, path = frame.f_code.co_name, frame.f_code.co_filename
        if name.startswith("<") or not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            return  # what is not optimized is the body of a class or of a module, which an import runs
        if path.startswith(WINGS) and not path.endswith(BESIDE) and not _called_by_the_other_side(frame):
            names = self.files.setdefault(str(Path(path).relative_to(ROOT)), [])
            if name not in names:
                names.append(name)


def _called_by_the_other_side(frame: FrameType | None) -> bool:
    while frame is not None and not frame.f_code.co_filename.endswith(OTHER_SIDE):
        frame = frame.f_back
    return frame is not None


def from_record_to_the_wire(walk: Walk, folder: Path) -> None:
    """An answer is recorded, its period closes, and a flush seals its report and sends it."""
    from changeling_client import Client
    from changeling_client.testing import FakeServer, ManualClock, make_survey

    clock = ManualClock()
    server = FakeServer(clock)
    survey = make_survey(epsilon=3.0)
    server.publish(survey)
    with Client(
        path=folder / "app.db",
        server=server.url,
        authority=server.authority,
        max_epsilon=10,
        transport=server.transport,
        clock=clock,
        background=False,
    ) as client:
        handle = client.join(survey.id.hex())
        client.flush()
        with walk.on():
            handle.record(survey.answers[0])
        clock.advance(days=2)
        with walk.on():
            client.flush()
    if not server.reports:
        raise RuntimeError("nothing arrived on the wire")


def from_a_wish_to_a_survey(walk: Walk, folder: Path) -> None:
    """A wish on the command line becomes the best plan and its survey, which the authority signs."""
    from changeling_commands import main as changeling

    survey, authority = folder / "survey.json", folder / "authority"
    _run(changeling, "authority", "new", "-o", authority)
    _run(changeling, "survey", "--help")  # imports what is no step of the way
    wish = "--answers a,b,c --devices 20000 --start 2027-01-01 --period 1w --horizon 4w --at-most 2 --epsilon 8"
    with walk.on():
        _run(changeling, "survey", "new", *wish.split(), "--question", "Which?", "-o", survey)
        _run(changeling, "survey", "sign", survey, "--key", authority / "authority.key", "-o", folder / "survey.signed")


def from_a_row_to_a_released_line(walk: Walk, folder: Path) -> None:
    """A curator's changelog becomes counts with noise, period by period."""
    from changeling_commands import main as changeling

    source = folder / "changes.csv"
    source.write_text("entry,time,answer\n1,2026-01-01T01:00,a\n2,2026-01-01T02:00,b\n1,2026-01-03T00:00,\n")
    words = "--every 1d --epsilon 1 --at-most 2 --start 2026-01-01 --until 2026-01-08 --through 2026-01-08"
    _run(changeling, "release", "--help")  # as above
    with walk.on():
        _run(changeling, "release", source, "--query", "any answer", *words.split(), "-o", folder / "counts.csv")


def _run(main: Callable[[list[str]], int], *words: object) -> None:
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        code = main([str(word) for word in words])
    if code:
        raise RuntimeError(f"{words[0]} ended with {code}: {said.getvalue()}")


def from_an_upload_to_a_histogram(walk: Walk, folder: Path) -> None:
    """An upload of one envelope is taken in, folded and shown, on SQLite, in one process."""
    import httpx
    from changeling_aggregator.server import MovableClock, ServerSettings, Service, make_app
    from changeling_aggregator.store import Store, TokenScope
    from changeling_client.testing import AUTHORITY, make_survey
    from changeling_protocol import (
        Closing,
        Node,
        NodeNumber,
        Report,
        SealingKey,
        Standing,
        StratumNumber,
        SystemCoins,
        TrackNumber,
        UnixSeconds,
        draw_closing_id,
        encode_upload,
        seal,
    )
    from changeling_protocol.wire import encode_upload_request

    survey = make_survey(epsilon=3.0, periods=3)
    store = Store.open(folder / "server.db")
    with store.transaction() as writing:
        key = SealingKey(writing.make_key(), 0, 2**40)
        writing.add_token(token := "for everything", "journeys", list(TokenScope), UnixSeconds(0))
    operator = {"authorization": f"Bearer {token}"}
    clock = MovableClock(UnixSeconds(survey.calendar.time(2)))
    service = Service(store, ServerSettings([AUTHORITY.public_key().public_bytes_raw()], clock))
    closing = Closing(1, draw_closing_id(SystemCoins()), Standing.NEW, StratumNumber(0))
    report = Report(TrackNumber(0), NodeNumber(1), 1)
    upload = encode_upload(survey.plan, 0, Node(0, 3), [closing], [report])
    body = encode_upload_request([seal(upload, survey.id, key)])

    async def ask() -> None:
        transport = httpx.ASGITransport(make_app(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as http:
            (await http.put("/v1/keys", content=key.signed_by(AUTHORITY), headers=operator)).raise_for_status()
            path = f"/v1/surveys/{survey.id.hex()}"
            (await http.put(path, content=survey.signed_by(AUTHORITY), headers=operator)).raise_for_status()
            with walk.on():
                (await http.post("/v1/uploads", content=body)).raise_for_status()
                (await http.post("/v1/fold", headers=operator)).raise_for_status()
                (await http.get(f"{path}/histogram?period=1", headers=operator)).raise_for_status()

    service.committer.start()  # and nothing that looks by itself every second, whenever that is
    try:
        asyncio.run(ask())
    finally:
        service.close()


JOURNEYS: dict[str, Callable[[Walk, Path], None]] = {
    "from record to the wire": from_record_to_the_wire,
    "from an upload to a histogram": from_an_upload_to_a_histogram,
    "from a wish to a signed survey": from_a_wish_to_a_survey,
    "from a CSV row to a released line": from_a_row_to_a_released_line,
}


def walk_all() -> dict[str, dict[str, list[str]]]:
    """For each journey the files that it passed, in order, each with the functions that were called, in order."""
    walked = {}
    for name, journey in JOURNEYS.items():
        walk = Walk()
        threading.setprofile(walk)
        try:
            with tempfile.TemporaryDirectory() as folder:
                journey(walk, Path(folder))
        finally:
            threading.setprofile(None)
        walked[name] = walk.files
    return walked


def as_markdown(walked: dict[str, dict[str, list[str]]]) -> str:
    """The section of docs/architecture.md: a list for each journey, with what each file promises."""
    lines = []
    for number, (name, files) in enumerate(walked.items(), start=1):
        lines += [f"### Journey {number}: {name}", "", (JOURNEYS[name].__doc__ or "").strip(), ""]
        lines += [f"{at}. `{path}`: {_promise(path)}" for at, path in enumerate(files, start=1)]
        lines.append("")
    return "\n".join(lines)


def _promise(path: str) -> str:
    """The first sentence of a module's docstring."""
    docstring = ast.get_docstring(ast.parse((ROOT / path).read_text())) or ""
    return " ".join(docstring.split("\n\n")[0].split()).rstrip(".")


def _unnumbered(line: str) -> str:
    """A line without its number: threads may call two files in either order."""
    return line.lstrip("0123456789")


def main(*words: str) -> None:
    """Prints the journeys, writes them into the page, or checks that it has them and prints their lengths."""
    page, walked = PAGE.read_text(), walk_all()
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    written = f"{before}{BEGIN}\n\n{as_markdown(walked)}{END}{after}"
    if "--write" in words:
        PAGE.write_text(written)
    elif "--check" in words:
        if sorted(map(_unnumbered, written.splitlines())) != sorted(map(_unnumbered, page.splitlines())):
            raise SystemExit(f"{PAGE.name} has other journeys: run `python -m benchmarks.journeys --write`")
        sys.stdout.write(" ".join(str(len(files)) for files in walked.values()) + "\n")
    else:
        sys.stdout.write(written[len(before) : len(written) - len(after)] + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
