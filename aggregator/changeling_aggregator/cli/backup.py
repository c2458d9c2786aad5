"""`changeling backup` and `changeling restore`: a store in one file, and back."""

import time
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer
from changeling_protocol import UnixMilliseconds, UnixSeconds
from changeling_statistics import format_instant

from .store import STORE_HELP

_RESTORED = """\
{store} is what the store was at {taken}. It has not got
- what was acknowledged after that moment, and {unfolded} that were acknowledged and not counted by then. What devices
  still have of it they send again, and it counts;
- the private halves of sealing keys. Make the next one: `changeling keys new`, `keys sign`, `keys publish`. Until then
  devices send nothing, and what is sealed to the old ones is refused and sealed again;
- the log, so that the {open} closings that were open at that moment cannot be folded again, and
  `changeling fold --check` names them until they are sealed. Their ids are there: what was counted for them counts
  once, whoever sends it again.
- surveys and early ends that were published after that moment: publish them again; and tokens: revoke again what was
  revoked.
Results that were shown after that moment may be shown again from fewer reports. Never start the old store again beside
this one. A server that starts on it may doubt its clock: see the operator's guide."""


def backup(
    store: Annotated[str, typer.Option(help=f"What to copy; servers may be running on it. {STORE_HELP}")],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write; none is overwritten.")],
) -> None:
    """Write all that a store has counted and published into one file, as it is at one moment.

    Neither private sealing keys nor the log of envelopes are in it, so what is not counted yet is not.
    """
    from ..store import Store, back_up

    with closing(Store.open(store)) as opened:
        done = back_up(opened, output, UnixMilliseconds(int(time.time() * 1000)))
    typer.echo(
        f"wrote {output}, without {_requests(done.unfolded)} that are not counted yet, and with the ids of "
        f"{len(done.open)} open closings"
    )


def restore(
    file: Annotated[Path, typer.Argument(help="What `changeling backup` wrote.")],
    store: Annotated[str, typer.Option(help=f"A new store, made if missing. {STORE_HELP}")],
) -> None:
    """Put a backup into a new store, and say what is lost."""
    from ..store import Store, opened_backup
    from ..store import restore as put_back

    with opened_backup(file) as connection, closing(Store.open(store)) as opened:
        done = put_back(connection, opened)
    taken = format_instant(UnixSeconds(done.taken // 1000))
    typer.echo(
        _RESTORED.format(store=store, taken=taken, unfolded=_requests(done.unfolded), open=len(done.open)),
    )


def _requests(count: int) -> str:
    return f"{count} upload" + ("" if count == 1 else "s")
