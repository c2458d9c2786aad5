"""The device that most tests of the client begin with."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
from changeling_client import Client, SurveyHandle
from changeling_client.testing import FakeServer as AppsServer
from changeling_client.testing import make_client

from .device import START, Bundled, Clock, FakeServer, client


class Begun(NamedTuple):
    """A client that is open, the server that it speaks with, and the clock of both."""

    device: Bundled
    server: FakeServer
    clock: Clock


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Begun]]:
    """Opens a client in the test's folder, or one in it, whose server has these surveys; closed when the test ends.

    now: what its clock shows. server: the one of a client before. after: a client that is closed before, with whose
    server and clock this one goes on. coins, and further options: as `client` takes them.
    """
    with ExitStack() as opened:

        def opens(*surveys, now=START, folder="", coins=None, server=None, after=None, **options):
            server, clock = server or FakeServer(*surveys), Clock(now)
            if after is not None:
                after.close()
                server, clock = after.bundle, after.clock
            device = opened.enter_context(client(tmp_path / folder, server, clock, coins, **options))
            return Begun(device, server, clock)

        yield opens


@pytest.fixture
def joined(begin: Callable[..., Begun]) -> Callable[..., tuple[SurveyHandle, Bundled, FakeServer, Clock]]:
    """Opens a client as `begin` does, which joins its survey, and gives the handle first."""

    def joins(asked, **options):
        joining = {name: options.pop(name) for name in ("entries", "answers", "stratum", "signed") if name in options}
        begun = begin(asked, **options)
        return begun.device.join(asked.id, **joining), *begun

    return joins


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Callable[..., tuple[Client, AppsServer]]]:
    """Opens the client that an app's tests are given, in the test's folder, or one in it; closed when the test ends.

    server: one that was there before. options: as `make_client` takes them. Gives the client and its server.
    """
    with ExitStack() as opened:

        def opens(server=None, folder="", **options):
            server = server or AppsServer()
            return opened.enter_context(make_client(tmp_path / folder, server, **options)), server

        yield opens
