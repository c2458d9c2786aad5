"""The ledger of a changelog: what its releases have cost together, in a file that stays beside it.

Losses of several releases of one changelog add up (`sums`). The file says whose it is by an id that knows
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
from ..saved import replaced
from .drawn import Drawn
from .sums import Cost, number, refuse_beyond, total

VERSION = 2
"""Of the file's form."""


@dataclass(frozen=True, slots=True)
class Charge:
    """What one release costs. release: its id. output, query: of it, in words.

    epsilon, delta, rho: as fractions; what is rho-zCDP is charged in rho alone, else that is None. drawn: how far it
    has drawn.
    """

    release: str
    output: str
    query: str
    epsilon: str
    delta: str
    rho: str | None = None
    drawn: Drawn = field(default_factory=Drawn)

    @classmethod
    def of(cls, output: str, query: str, cost: Cost) -> "Charge":
        """Of a release that is to come, whose id is still to be given."""
        rho = None if cost.rho is None else str(cost.rho)
        return cls("", output, query, str(cost.epsilon), str(cost.delta), rho)

    @property
    def cost(self) -> Cost:
        """What it costs."""
        return Cost(Fraction(self.epsilon), Fraction(self.delta), None if self.rho is None else Fraction(self.rho))


@dataclass(frozen=True, slots=True)
class Ledger:
    """changelog: whose it is. unit: of whom the costs speak. charges: of all releases so far.

    epsilon, delta: the budget of them all, as fractions; rho: that, where it is in rho. None where none was set.
    """

    changelog: str
    unit: str
    epsilon: str | None = None
    delta: str | None = None
    rho: str | None = None
    charges: tuple[Charge, ...] = ()

    @property
    def spent(self) -> tuple[Fraction, Fraction]:
        """The sums of (epsilon, delta), without what is charged in rho."""
        epsilon = sum((Fraction(charge.epsilon) for charge in self.charges), Fraction(0))
        return epsilon, sum((Fraction(charge.delta) for charge in self.charges), Fraction(0))

    @property
    def spent_rho(self) -> Fraction:
        """The sum of what is charged in rho."""
        return sum((Fraction(charge.rho or 0) for charge in self.charges), Fraction(0))

    @property
    def budget(self) -> Cost | None:
        """Of all releases together; None where none was set."""
        if self.rho is not None:
            return Cost(Fraction(0), Fraction(0), Fraction(self.rho))
        return None if self.epsilon is None else Cost(Fraction(self.epsilon), Fraction(self.delta or 0))

    @property
    def costs(self) -> list[Cost]:
        """Of each release."""
        return [charge.cost for charge in self.charges]

    def charged(self, charge: Charge) -> "Ledger":
        """With one more release, or as it is where that is in it.

        Raises BudgetExhausted where it is too much, and ValueError for a cost below 0, which would give some back, and
        for one that is not of the budget's kind.
        """
        if any(other.release == charge.release for other in self.charges):
            return self
        cost = charge.cost
        if min(cost.epsilon, cost.delta, cost.rho or 0) < 0:
            raise ValueError(f"a cost is not negative, got {charge.epsilon}, {charge.delta} and {charge.rho or 0}")
        if self.budget is not None:
            refuse_beyond(self.budget, self.costs, cost)
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
        """What the releases have cost, in a sentence; by which composition, where it is not the sum."""
        budget, added = self.budget, total(self.budget, self.costs)
        releases = f"{len(self.charges)} release" + "s" * (len(self.charges) != 1)
        whom = "an entry" if self.unit == "entry" else "a person"
        head = f"{releases} of the changelog {self.changelog} cost {whom} "
        if budget is None or added is None:
            return head + self._sums()
        if budget.rho is not None:
            return f"{head}{added.cost.said()} of {number(budget.rho)}"
        at = f", delta {number(added.cost.delta)}" if added.cost.delta else ""
        way = "" if added.way == "basic" else f", by {added.way} composition (they add up to {self._sums()})"
        return f"{head}epsilon {number(added.cost.epsilon)} of {number(budget.epsilon)}{at}{way}"

    def _sums(self) -> str:
        epsilon, delta = self.spent
        parts = [Cost(epsilon, delta).said()] * bool(epsilon or not self.spent_rho)
        return " and ".join([*parts, *[f"rho {number(self.spent_rho)}"] * bool(self.spent_rho)])


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
        texts += [parts[name] for name in parts if name not in ("drawn", "period", "rho")]
        if type(charge.drawn.period) is not int or charge.drawn.period < 0:
            raise ValueError
    costs = [*ledger.costs, *[budget for budget in (ledger.budget,) if budget is not None]]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError
    if any(min(cost.epsilon, cost.delta, cost.rho or 0) < 0 for cost in costs):
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
