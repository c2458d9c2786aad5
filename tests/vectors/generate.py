"""Writes the test vectors beside this file: `python -m tests.vectors.generate`.

They fix the protocol for implementations in other languages: docs/conformance.md says what each file asks of them. A
changed vector is a changed protocol: raise its version.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from changeling_protocol import VERSION

from .making import (
    bodies,
    calendars,
    canonical,
    costs,
    draws,
    histories,
    joint,
    lives,
    seals,
    signed,
    strata,
    symbols,
    uploads,
)
from .making.notation import Case

HERE = Path(__file__).parent
FILES: Mapping[str, Callable[[], list[Case]]] = {
    "bodies": bodies.cases,
    "calendars": calendars.cases,
    "canonical": canonical.cases,
    "costs": costs.cases,
    "draws": draws.cases,
    "histories": histories.cases,
    "joint": joint.cases,
    "lives": lives.cases,
    "seals": seals.cases,
    "signed": signed.cases,
    "strata": strata.cases,
    "symbols": symbols.cases,
    "uploads": uploads.cases,
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
