"""`changeling count`: a count of a stream, in a process that keeps nothing but a memory which may be seized.

The pan-private counter with no changelog beside it: numbers come in on standard input, one a period, and go out with
noise. Between two of them there is a file of fixed length that is written over in place, and nothing else. Noise is
drawn when it is needed, never ahead by the thousand: what a process holds could be seized as well.
"""

import sys
from collections.abc import Iterable, Iterator
from fractions import Fraction
from math import sqrt
from pathlib import Path
from typing import Annotated

import typer

from ..counters.overwritten import overwrite, read_over
from ..counters.pan_private import PanPrivateCounter, PanPrivateMemory
from ..noise import Noise
from ..releasing.header import spent
from ..releasing.limits import check_periods
from ..releasing.spending import pure_of
from ..saved import held


def count(
    periods: Annotated[int, typer.Option(help="How many numbers there will be, one a period; known in advance.")],
    at_most: Annotated[int, typer.Option(help="An entry changes the numbers of at most so many periods, by 1 each.")],
    memory: Annotated[Path, typer.Option(help="The file that is written over. Nothing else is kept.")],
    epsilon: Annotated[
        str | None, typer.Option(help="What an entry may lose by all outputs and one seizure of the memory.")
    ] = None,
    rho: Annotated[str | None, typer.Option(help="In place of epsilon: of concentrated privacy (zCDP).")] = None,
) -> None:
    """Count a stream with a memory that may be seized: a number a line comes in, period,estimate,standard_error go out.

    Each number is by how much the count changed in one period, such as 3 or -1. Run again with the same memory, it
    goes on with the period after the last one that was taken in. Keep no copy of what you feed it: the promise speaks
    of the memory and the outputs alone. Use a disk that overwrites in place.
    """
    from ..noise import OpenDPNoise  # OpenDP loads slowly, so only now

    if at_most < 1:
        raise ValueError(f"an entry changes the numbers of at least one period, got {at_most}")
    check_periods(periods)
    _, spends = pure_of(epsilon, rho)
    counter = PanPrivateCounter(periods, spends / at_most)
    with held(memory):
        state = resumed(counter, memory)
        typer.echo(
            f"changeling: {spent(spends, Fraction(0))} for an entry that changes at most {at_most} periods, by all "
            f"outputs and one seizure of {memory} together; standard error {sqrt(counter.variance(1)):.6g}; period "
            f"{state.time + 1} of {periods} is next",
            err=True,
        )
        for period, estimate in counted(counter, state, memory, sys.stdin, OpenDPNoise()):
            typer.echo(f"{period},{estimate},{sqrt(counter.variance(period)):.17g}")
            sys.stdout.flush()


def resumed(counter: PanPrivateCounter, memory: Path) -> PanPrivateMemory:
    """The counter's memory in this file, or a new one. Raises BadState for a file that is not this counter's."""
    if not memory.exists() or not memory.stat().st_size:
        return counter.start()
    return counter.resumed(read_over(memory))


def counted(
    counter: PanPrivateCounter, state: PanPrivateMemory, memory: Path, lines: Iterable[str], noise: Noise
) -> Iterator[tuple[int, int]]:
    """(period, noisy count) of each line, once the memory is on the disk.

    ValueError, which does not repeat it, for a line that is no whole number: nothing was drawn for it.
    """
    for line in lines:
        if not line.strip():
            continue
        try:
            value = int(line)
        except ValueError:
            raise ValueError(f"period {state.time + 1}: not a whole number; nothing was drawn for it") from None
        state, estimate = counter.step(state, value, noise)
        overwrite(memory, counter.saved(state))
        yield state.time, estimate
