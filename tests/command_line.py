"""Both console scripts, run in this process, and what they print; nothing else names the modules that they are in."""

import os
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from types import SimpleNamespace
from unittest.mock import patch

from changeling_commands import main as changeling
from changeling_simulations.cli import main as changeling_sim

__all__ = ["changeling", "changeling_sim", "invoked"]


def invoked(main, *words, columns=100):
    """exit_code, stdout, stderr, and output, which is both."""
    out, err, plain = StringIO(), StringIO(), {"COLUMNS": f"{columns}", "NO_COLOR": "1"}
    with patch.dict(os.environ, plain), redirect_stdout(out), redirect_stderr(err):
        code = main(list(words))
    return SimpleNamespace(
        exit_code=code, stdout=out.getvalue(), stderr=err.getvalue(), output=out.getvalue() + err.getvalue()
    )
