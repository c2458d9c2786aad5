"""`changeling-sim`, the survey designer's command line; without its dependencies it names the extra."""

import sys
from importlib.util import find_spec

NEEDED = ("numpy", "scipy", "typer", "rich", "matplotlib")


def main() -> None:
    if not all(map(find_spec, NEEDED)):
        sys.exit('changeling-sim needs its simulation parts: pip install "changeling[simulate]"')
    from .cli import app

    app()


if __name__ == "__main__":
    main()
