"""What a process leaves behind where it crashes: one that holds keys leaves no copy of its memory."""

import sys


def leave_no_core() -> None:
    """Neither this process nor any that it starts from now on leaves a core dump, in which its keys would lie.

    The limit is one byte and not none: either is too small for a file, and with one byte Linux also keeps the dump from
    the program that `kernel.core_pattern` may name, as none does not. It is a limit and not PR_SET_DUMPABLE, so that
    debuggers, and what an operator reads in /proc, go on working. Who has root's rights and wants a dump raises it with
    `prlimit`. Does nothing on Windows.
    """
    if sys.platform == "win32":
        return
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    least = 0 if most == 0 else 1
    resource.setrlimit(resource.RLIMIT_CORE, (least, least))
