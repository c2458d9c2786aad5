"""What must happen around a fork: SQLite files and locks do not survive one while they are in use.

POSIX locks are not inherited, and a parent that closes a file deletes the write-ahead log under its child. So whoever
registers here lets go of its files before the fork, and takes them up again when they are next needed.
"""

import os
from typing import Protocol
from weakref import WeakSet


class Forks(Protocol):
    """Something that lives through a fork."""

    def before_fork(self) -> None:
        """Waits until nothing is half done, and lets nothing begin until the fork is over."""
        ...

    def after_fork(self, in_child: bool) -> None:
        """Lets go on. in_child: whether this is the child, in which no other thread lives on."""
        ...


_registered: WeakSet[Forks] = WeakSet()
_forking: list[Forks] = []


def survive(each: Forks) -> None:
    """Tells it of every fork from now on, as long as it lives."""
    _registered.add(each)


def _before() -> None:
    _forking[:] = _registered
    for each in _forking:
        each.before_fork()


def _after(in_child: bool) -> None:
    for each in reversed(_forking):
        each.after_fork(in_child)
    _forking.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before, after_in_parent=lambda: _after(in_child=False), after_in_child=lambda: _after(in_child=True)
    )
