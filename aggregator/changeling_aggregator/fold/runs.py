"""Runs of sorted ids: a few per node, each at least twice as long as the next.

So a batch rewrites little of what is stored, and an id is rewritten at most as often as a doubling takes.
"""

from collections.abc import Sequence

from .columns import id_bytes, id_frame


def with_run(runs: Sequence[bytes], ids: bytes) -> tuple[int, bytes]:
    """How many of the runs stay as they are, and the run that takes the place of the others.

    runs: the longest first. ids: sorted, none of them in a run.

    >>> with_run([bytes(64)], bytes(16))
    (1, b'\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00')
    """
    kept, size = len(runs), len(ids)
    while kept and len(runs[kept - 1]) < 2 * size:
        kept -= 1
        size += len(runs[kept])
    merged = b"".join([*runs[kept:], ids])
    return kept, id_bytes(id_frame(merged)) if kept < len(runs) else ids
