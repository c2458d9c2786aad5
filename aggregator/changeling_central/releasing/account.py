"""What a release does with the ledger of its changelog: it is charged, once, and says what it draws before it draws.

Each call reads the ledger, checks it and replaces it in one piece, under a lock. Why the draws are marked, and in which
order, is told in `drawn`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_hex

from ..errors import BadState, BudgetExhausted
from ..saved import held
from .drawn import Drawn, Mark
from .ledger import OTHERS, Charge, Ledger, read_ledger, write_ledger
from .sums import Cost, total
from .terms import begun
from .unit import Unit

WAIT = 30.0
"""Seconds that a release waits for another to have written the ledger."""


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
    budget: Cost | None = None

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
            write_ledger(self.path, ledger)
            return ledger.changelog

    def settled(
        self, release: str, known: str, mark: Mark | None = None, published: bool = False, charged: bool = False
    ) -> Ledger:
        """Charge the release, durably, unless it is.

        mark: what its state knows, None for what is drawn at once. published: the output holds rows of the state's
        flush. charged: it was charged before, so a ledger without it is an older one. The other arguments and errors:
        as of `opened`, and BadState where output, state or ledger is an older one.
        """
        with held(self.path, WAIT):
            before = self._ledger(known)
            if charged and before.drawn(release) is None:
                raise BadState(
                    f"the ledger {self.path} is older than this release, which it does not hold: put the newer one back"
                )
            ledger = self._charged(before, release)
            if mark is not None:
                there = before.drawn(release) or Drawn(mark.period, mark.tag)
                ledger = ledger.with_drawn(release, self._said(lambda: there.settled(mark, published)))
            write_ledger(self.path, ledger)
            return ledger

    def announced(self, release: str, known: str, mark: Mark, about: str) -> None:
        """Say, durably, that a flush is about to be drawn. about: its tag. mark: what the state knows before it.

        Raises BadState where another process drew from the same state, and for a ledger that was changed meanwhile.
        """
        self._follow(release, known, lambda drawn: drawn.announced(mark, about))

    def marked(self, release: str, known: str, mark: Mark) -> None:
        """Say, durably, that the flush of the state is drawn and will be published. Errors: as of `announced`."""
        self._follow(release, known, lambda drawn: drawn.marked(mark))

    def _follow(self, release: str, known: str, step: Callable[[Drawn], Drawn]) -> None:
        with held(self.path, WAIT):
            ledger = self._ledger(known)
            there = ledger.drawn(release)
            if there is None:
                raise BadState(f"{self.path} no longer holds this release: put it back, {OTHERS}")
            write_ledger(self.path, ledger.with_drawn(release, self._said(lambda: step(there))))

    def _said(self, step: Callable[[], Drawn]) -> Drawn:
        try:
            return step()
        except BadState as error:
            raise BadState(f"{self.charge.output}, {self.path.name}: {error}") from error

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
            raise BadState(f"{self.path}, which this release is charged to, is gone: put it back, {OTHERS}")
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
        if (wanted := self.budget) is None:
            return ledger
        if (there := ledger.budget) is not None:
            if (there.rho is None) != (wanted.rho is None):
                raise ValueError(f"the budget in {self.path} was set once, as {there.said()}: lower it in kind")
            parts = ((wanted.epsilon, there.epsilon), (wanted.delta, there.delta), (wanted.rho or 0, there.rho or 0))
            if any(a > b for a, b in parts):
                raise ValueError(f"the budget in {self.path} was set once, and is lowered at most, never raised")
        added = total(wanted, ledger.costs)
        if added is None or not added.fits(wanted):
            raise BudgetExhausted(f"{self.path}: {ledger.said()}, which is more than the budget asked for")
        if wanted.rho is not None:
            return replace(ledger, rho=str(wanted.rho))
        return replace(ledger, epsilon=str(wanted.epsilon), delta=str(wanted.delta))


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
