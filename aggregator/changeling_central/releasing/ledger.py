"""The ledger of a changelog: what its releases have cost together, in a file that stays beside it.

Losses of several releases of one changelog add up (basic composition). The file says whose it is by an id that knows
nothing of the content, as that grows: chosen by the curator, or drawn with the first release. It is replaced in one
piece, under a lock; damaged, of another changelog, or gone, it is refused. A release is charged whole, once, by an id
of its own, after its state is kept and before anything is drawn: whatever is killed, nothing is drawn that is not
charged, and nothing is charged twice.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from secrets import token_hex

from ..errors import BadState, BudgetExhausted
from ..odometer import Odometer
from ..saved import held, replaced
from .terms import begun
from .unit import Unit

WAIT = 30.0
"""Seconds that a release waits for another to have written the ledger."""


@dataclass(frozen=True, slots=True)
class Charge:
    """What one release costs. release: its id. output, query: of it, in words. epsilon, delta: as fractions."""

    release: str
    output: str
    query: str
    epsilon: str
    delta: str


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

    def said(self) -> str:
        """What the releases have cost, in a sentence."""
        (epsilon, delta), budget = self.spent, self.budget
        number = f"{len(self.charges)} release" + "s" * (len(self.charges) != 1)
        of = "" if budget is None else f" of {_number(budget[0])}"
        with_delta = "" if not delta else f", delta {_number(delta)}"
        whom = "an entry" if self.unit == "entry" else "a person"
        return f"{number} of the changelog {self.changelog} cost {whom} epsilon {_number(epsilon)}{of}{with_delta}"


@dataclass(frozen=True, slots=True)
class Account:
    """A release that is to be charged to the ledger at `path`.

    unit: what the release protects. charge: what it costs; its release id is still to come. changelog: the id that the
    ledger must have, or is made with; None for any. budget: of all releases, None to leave it as it is.
    """

    path: Path
    unit: Unit
    charge: Charge
    changelog: str | None = None
    budget: tuple[Fraction, Fraction] | None = None

    def __post_init__(self) -> None:
        if self.path.is_symlink():  # it would be replaced by a second ledger
            object.__setattr__(self, "path", self.path.resolve())

    def opened(self, release: str | None, known: str) -> str:
        """The id of the ledger's changelog, which is made where there is none; nothing is charged.

        release: its id, None before it has begun. known: the changelog's id that it began with, "" for none.
        Raises BadState for a damaged ledger, one of another changelog, and one that is gone; BudgetExhausted where
        the release is more than what is left; ValueError for another unit, and for a budget that would be raised.
        """
        with held(self.path, WAIT):
            ledger = self._ledger(known)
            self._charged(ledger, release or "")
            _write(self.path, ledger)
            return ledger.changelog

    def settled(self, release: str, known: str) -> Ledger:
        """Charge the release, durably, unless it is. Arguments and errors: as of `opened`."""
        with held(self.path, WAIT):
            ledger = self._charged(self._ledger(known), release)
            _write(self.path, ledger)
            return ledger

    def _charged(self, ledger: Ledger, release: str) -> Ledger:
        for charge in ledger.charges:
            if charge.release == release and _goes_on_elsewhere(charge, Path(self.charge.output)):
                raise BadState(
                    f"{self.charge.output} goes on from a copy of the state of {charge.output}, which is charged once: "
                    "both would draw for the same nodes; go on with that one, or choose another output"
                )
        try:
            return ledger.charged(replace(self.charge, release=release))
        except BudgetExhausted as error:
            raise BudgetExhausted(f"{self.path}: {error}") from error

    def _ledger(self, known: str) -> Ledger:
        ledger = read_ledger(self.path)
        if ledger is None and known:
            raise BadState(f"{self.path}, which this release is charged to, is gone: put it back, {_OTHERS}")
        if ledger is None:
            ledger = Ledger(self.changelog or token_hex(8), self.unit.name)
        for wanted in (known, self.changelog):
            if wanted and wanted != ledger.changelog:
                raise BadState(
                    f"{self.path} is the ledger of the changelog {ledger.changelog!r}, not of {wanted!r}: "
                    "name the right one, --ledger"
                )
        if ledger.unit not in ("entry", self.unit.name):
            raise ValueError(
                f"{self.path} adds up what a {ledger.unit} loses, which a release that protects {self.unit.said} does "
                "not bound"
            )
        return self._with_budget(ledger)

    def _with_budget(self, ledger: Ledger) -> Ledger:
        if self.budget is None:
            return ledger
        if ledger.budget is not None and any(a > b for a, b in zip(self.budget, ledger.budget, strict=True)):
            raise ValueError(f"the budget in {self.path} was set once, and is lowered at most, never raised")
        if any(a > b for a, b in zip(ledger.spent, self.budget, strict=True)):
            raise BudgetExhausted(f"{self.path}: {ledger.said()}, which is more than the budget asked for")
        return replace(ledger, epsilon=str(self.budget[0]), delta=str(self.budget[1]))


def _goes_on_elsewhere(charge: Charge, output: Path) -> bool:
    """Whether the output that was charged is another one and still has the state of this release: it was copied."""
    charged = Path(charge.output)
    if charged.absolute() == output.absolute() or (charged.exists() and output.exists() and charged.samefile(output)):
        return False
    try:
        there = begun(charged.with_name(charged.name + ".state"))
    except BadState:
        return False
    return there is not None and there.saved.charge == charge.release


_OTHERS = "as it holds what other releases have cost"


def read_ledger(path: Path) -> Ledger | None:
    """The ledger in this file, None where there is none. Raises BadState for one that is not whole."""
    try:
        written = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        whole = json.loads(written)
        ledger = _of_fields(whole["ledger"])
        if _text(ledger) != written:
            raise ValueError
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, ZeroDivisionError) as error:
        raise BadState(f"{path} is not a whole ledger: put it back as it was, {_OTHERS}") from error
    return ledger


def _of_fields(fields: Mapping[str, object]) -> Ledger:
    listed = fields["charges"]
    if not isinstance(listed, list):
        raise TypeError
    charges = tuple(Charge(**charge) for charge in listed)
    ledger = Ledger(**{**fields, "charges": charges})  # type: ignore[arg-type]
    texts = [ledger.changelog, ledger.unit, *(part for charge in charges for part in asdict(charge).values())]
    if not all(isinstance(text, str) for text in texts) or min(*ledger.spent, *(ledger.budget or ())) < 0:
        raise ValueError
    return ledger


def _text(ledger: Ledger) -> bytes:
    fields = asdict(ledger)
    digest = sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
    return (json.dumps({"ledger": fields, "sha256": digest}, indent=2) + "\n").encode()


def _write(path: Path, ledger: Ledger) -> None:
    if read_ledger(path) != ledger:
        replaced(path, _text(ledger))


def _number(exact: Fraction) -> str:
    """As few digits as say it, never less than it is."""
    short = f"{float(exact):.6g}"
    return short if Fraction(short) >= exact else str(exact)
