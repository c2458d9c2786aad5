"""What a process leaves of its memory when it dies: nothing, as private keys and addresses are in it."""

import sys


def leave_no_core() -> None:
    """Have the system write no core file of this process, nor of those that it starts, whatever was allowed before.

    A program that is given cores through a pipe is told the same, and may heed it or not.
    """
    if sys.platform != "win32":
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (0, most))
