"""The ledger of a changelog: what its releases have cost together, in a file that stays beside it.

Losses of several releases of one changelog add up (basic composition). The file says whose it is by an id that knows
nothing of the content, as that grows: chosen by the curator, or drawn with the first release. It is replaced in one
piece, under a lock (`account`); damaged, of another changelog, or gone, it is refused. A release is charged whole,
once, by an id of its own, after its state is kept and before anything is drawn: whatever is killed, nothing is drawn
that is not charged, and nothing is charged twice.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from hashlib import sha256
from pathlib import Path

from ..errors import BadState
from ..odometer import Odometer
from ..saved import replaced
from .drawn import Drawn

VERSION = 2
"""Of the file's form."""


@dataclass(frozen=True, slots=True)
class Charge:
    """What one release costs. release: its id. output, query: of it, in words. epsilon, delta: as fractions.

    drawn: how far it has drawn.
    """

    release: str
    output: str
    query: str
    epsilon: str
    delta: str
    drawn: Drawn = field(default_factory=Drawn)


@dataclass(frozen=True, slots=True)
class Ledger:
    """changelog: whose it is. unit: of whom the costs speak. charges: of all releases so far.

    epsilon, delta: the budget of them all, as fractions; None where none was set.
    """

    changelog: str
    unit: str
    epsilon: str | None = None
    delta: str | None = None
    charges: tuple[Charge, ...] = ()

    @property
    def spent(self) -> tuple[Fraction, Fraction]:
        """What all releases cost together, (epsilon, delta)."""
        epsilon = sum((Fraction(charge.epsilon) for charge in self.charges), Fraction(0))
        return epsilon, sum((Fraction(charge.delta) for charge in self.charges), Fraction(0))

    @property
    def budget(self) -> tuple[Fraction, Fraction] | None:
        """Of all releases together; None where none was set."""
        return None if self.epsilon is None else (Fraction(self.epsilon), Fraction(self.delta or 0))

    def charged(self, charge: Charge) -> "Ledger":
        """With one more release, or as it is where that is in it.

        Raises BudgetExhausted where it is too much, and ValueError for a cost below 0, which would give some back.
        """
        if any(other.release == charge.release for other in self.charges):
            return self
        cost = Fraction(charge.epsilon), Fraction(charge.delta)
        if min(cost) < 0:
            raise ValueError(f"a cost is not negative, got {charge.epsilon} and {charge.delta}")
        if self.budget is not None:
            Odometer(*self.budget, *self.spent).charged(*cost)
        return replace(self, charges=(*self.charges, charge))

    def drawn(self, release: str) -> Drawn | None:
        """How far the release with this id has drawn; None where it is not charged."""
        return next((charge.drawn for charge in self.charges if charge.release == release), None)

    def with_drawn(self, release: str, drawn: Drawn) -> "Ledger":
        """With the release as far as it now has drawn."""
        return replace(
            self, charges=tuple(replace(c, drawn=drawn) if c.release == release else c for c in self.charges)
        )

    def said(self) -> str:
        """What the releases have cost, in a sentence."""
        (epsilon, delta), budget = self.spent, self.budget
        number = f"{len(self.charges)} release" + "s" * (len(self.charges) != 1)
        of = "" if budget is None else f" of {_number(budget[0])}"
        with_delta = "" if not delta else f", delta {_number(delta)}"
        whom = "an entry" if self.unit == "entry" else "a person"
        return f"{number} of the changelog {self.changelog} cost {whom} epsilon {_number(epsilon)}{of}{with_delta}"


OTHERS = "as it holds what other releases have cost"


def read_ledger(path: Path) -> Ledger | None:
    """The ledger in this file, None where there is none. Raises BadState for one that is not whole."""
    try:
        written = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        whole = json.loads(written)
        if whole["version"] != VERSION:
            raise BadState(f"{path} was written by another version of changeling: go on with that one")
        ledger = _of_fields(whole["ledger"])
        if _text(ledger) != written:
            raise ValueError
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, ZeroDivisionError) as error:
        raise BadState(f"{path} is not a whole ledger: put it back as it was, {OTHERS}") from error
    return ledger


def _of_fields(fields: Mapping[str, object]) -> Ledger:
    listed = fields["charges"]
    if not isinstance(listed, list):
        raise TypeError
    charges = tuple(Charge(**{**charge, "drawn": Drawn(**charge["drawn"])}) for charge in listed)
    ledger = Ledger(**{**fields, "charges": charges})  # type: ignore[arg-type]
    texts = [ledger.changelog, ledger.unit]
    for charge in charges:
        parts = {**asdict(charge), **asdict(charge.drawn)}
        texts += [parts[name] for name in parts if name not in ("drawn", "period")]
        if type(charge.drawn.period) is not int or charge.drawn.period < 0:
            raise ValueError
    if not all(isinstance(text, str) for text in texts) or min(*ledger.spent, *(ledger.budget or ())) < 0:
        raise ValueError
    return ledger


def _text(ledger: Ledger) -> bytes:
    fields = asdict(ledger)
    digest = sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
    return (json.dumps({"version": VERSION, "ledger": fields, "sha256": digest}, indent=2) + "\n").encode()


def write_ledger(path: Path, ledger: Ledger) -> None:
    """Put the ledger into this file, in one piece and on the disk, unless it is there already."""
    if read_ledger(path) != ledger:
        replaced(path, _text(ledger))


def _number(exact: Fraction) -> str:
    """As few digits as say it, never less than it is."""
    short = f"{float(exact):.6g}"
    return short if Fraction(short) >= exact else str(exact)
