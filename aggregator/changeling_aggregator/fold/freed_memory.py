"""Keeps memory that a fold frees for its next arrays.

A batch's arrays are of megabytes. The C library hands such memory back to the system as soon as it is free, and each
time that it is asked for again the system clears it page by page: half of the fold's processor time, as measured.
"""

import ctypes
from functools import cache

KEPT_BYTES = 256 * 2**20
"""So much that is free is kept, in each of the few pools that the library has."""
LARGEST_BYTES = 32 * 2**20
"""An array that is larger is handed back all the same: 32 MiB is the most that the library can be told."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""As <malloc.h> of the GNU C library has them."""


@cache
def keep_freed_memory() -> bool:
    """Have this process keep what it frees; whether its C library can be told so. Others, as musl's, cannot."""
    try:
        tell = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(tell(_MMAP_THRESHOLD, LARGEST_BYTES)) and bool(tell(_TRIM_THRESHOLD, KEPT_BYTES))
