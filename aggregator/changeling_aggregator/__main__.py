"""The console script `changeling`; in a bare install, a word on what is missing."""

import sys


def main() -> int:
    try:
        from .cli import run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("changeling"):
            raise
        print('changeling needs its server parts: pip install "changeling[server]"', file=sys.stderr)
        return 1
    return run()


if __name__ == "__main__":
    sys.exit(main())
