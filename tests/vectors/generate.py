"""Writes the test vectors beside this file: `python -m tests.vectors.generate`.

They fix the protocol for implementations in other languages: docs/conformance.md says what each file asks of them. A
changed vector is a changed protocol: raise its version.
"""

import json
from pathlib import Path

from changeling_protocol import VERSION

from .making import drawn, lives, measured, signed, wire

HERE = Path(__file__).parent
FILES = {
    "bodies": wire.bodies,
    "calendars": measured.calendars,
    "canonical": wire.canonical,
    "costs": measured.costs,
    "draws": drawn.draws,
    "histories": drawn.histories,
    "joint": drawn.joint,
    "lives": lives.cases,
    "seals": wire.seals,
    "signed": signed.cases,
    "strata": measured.strata,
    "symbols": drawn.symbols,
    "uploads": wire.uploads,
}


def text(name: str) -> str:
    """What the file of this name holds: one case a line, so that a difference shows which it is."""
    cases = ",\n".join(json.dumps(case, ensure_ascii=False) for case in FILES[name]())
    return f'{{"vectors": "{name}", "version": {VERSION}, "cases": [\n{cases}\n]}}\n'


def main() -> None:
    """Writes every file anew."""
    for name in FILES:
        (HERE / f"{name}.json").write_text(text(name), encoding="utf-8")


if __name__ == "__main__":
    main()
