"""`changeling` in a process that knows the toy, and so do all that it starts: they import the module it was run as."""

import sys

from changeling_commands.__main__ import main

from . import test_a_toy_randomizer  # noqa: F401

if __name__ == "__main__":
    sys.exit(main())
