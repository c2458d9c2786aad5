"""The ledger of a changelog: what its releases have cost together, in a file that stays beside it.

Losses of several releases of one changelog add up (`composition`). The file says whose it is by an id that knows
nothing of the content, as that grows: chosen by the curator, or drawn with the first release. It is read, checked and
replaced in one piece, under a lock; damaged, of another changelog, or gone, it is refused. A release is charged whole,
once, by an id of its own, after its state is kept and before anything is drawn: whatever is killed, nothing is drawn
that is not charged, and nothing is charged twice.

The ledger also remembers how far each release has drawn, which an older output and an older state cannot know. Every
flush of a release has a random tag. The ledger has the tag of the last flush that may have been published, and that of
one which is about to be drawn; the state has its own tag and the one before. The order of writes is

    ledger: about to draw under t'      state: drawn under t', after t      ledger: t' is drawn      output: its rows

Killed between any two, a release goes on: a t' that never reached the state was seen by nobody, one that did is marked
as drawn and its rows are published. A state that was put back has a tag that the ledger has left behind, a ledger that
was put back lacks the state's tag, and of two processes that draw after the same tag one finds that the other has
announced itself, before it publishes. So a flush is drawn twice, or its charge forgotten, only where every file that
was written since was put back together.

By a fingerprint, a hash of a file's first rows, a ledger knows the data that it was made for. A file that begins as
another does is most likely a copy of it, of which a new ledger would forget what the first one cost. It is a warning,
not a lock: who writes the rows anew, in another order or form, is not recognised.
"""

import gzip
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from hashlib import sha256
from itertools import islice
from pathlib import Path
from secrets import token_hex

from .budget import ReleaseCost, Unit, number, refuse_beyond, total_cost
from .errors import BadState, BudgetExhausted
from .files import held, replaced
from .statement import SavedRelease, begun


@dataclass(frozen=True, slots=True)
class Drawn:
    """A release as its ledger knows it.

    period: the last that may have been published. tag: of its flush, "" before the release has begun. about: the tag of
    a flush that is about to be drawn, "" for none.
    """

    period: int = 0
    tag: str = ""
    about: str = ""

    def settled(self, saved: SavedRelease, published: bool) -> "Drawn":
        """The entry of the ledger once a release goes on from this state.

        published: whether the output holds rows of the state's flush already.
        Raises BadState, which says what is older than what, for a state that does not follow what the ledger knows.
        """
        if saved.tag == self.tag:
            return self
        if saved.tag == self.about and saved.before == self.tag and not published:  # killed before it was marked
            return Drawn(saved.period, saved.tag)
        if saved.period < self.period:
            raise BadState(
                f"this output is older than what the ledger says was drawn: its state ends with period {saved.period}, "
                f"and the ledger knows of draws until period {self.period}, so going on would draw again for what was "
                "published; put the newer output and state back, or choose another output"
            )
        if saved.period > self.period or saved.tag == self.about:
            raise BadState(
                f"the ledger is older than this output: it knows of draws until period {self.period}, and the state "
                f"ends with period {saved.period}, so what was charged since may be missing; put the newer ledger back"
            )
        raise BadState(
            f"the draws until period {self.period} that the ledger knows of are others than this state's: the release "
            "went on from a copy or a backup; go on with that one, or choose another output"
        )

    def announced(self, saved: SavedRelease, about: str) -> "Drawn":
        """With a flush that is about to be drawn after the state's. BadState where another process was faster."""
        if saved.tag != self.tag:
            raise _fork()
        return replace(self, about=about)

    def marked(self, saved: SavedRelease) -> "Drawn":
        """With the flush of this state as drawn. BadState where another process was faster: nothing is published."""
        if (self.tag, self.about) != (saved.before, saved.tag):
            raise _fork()
        return Drawn(saved.period, saved.tag)


def _fork() -> BadState:
    return BadState("another process goes on with a copy of this release: nothing of this flush was published")


MOST_ROWS = 1000


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """rows: how many a file had when this was taken, MOST_ROWS at most; 0 for what is no file. digest: SHA-256 of its
    header and these rows, in hex."""

    rows: int = 0
    digest: str = ""

    def fits(self, path: Path) -> bool:
        """True if the file begins with these rows."""
        return self.rows > 0 and fingerprint_of(path, self.rows) == self


def fingerprint_of(path: Path, rows: int = MOST_ROWS) -> Fingerprint:
    """The fingerprint of a .csv, .csv.gz or .parquet file's first rows. rows: as many, or fewer where the file ends.

    A last line that is not ended is left out, as it may go on.
    """
    lines = list(islice(_lines(path), rows + 1))
    if len(lines) < 2:  # a header alone
        return Fingerprint()
    return Fingerprint(len(lines) - 1, sha256(b"\n".join(lines)).hexdigest())


def _lines(path: Path) -> Iterator[bytes]:
    if path.suffix == ".parquet":
        import polars as pl

        yield from pl.read_parquet(path, n_rows=MOST_ROWS).write_csv().encode().splitlines()
        return
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield line.rstrip(b"\r\n")


VERSION = 3
"""Of the file's form."""


@dataclass(frozen=True, slots=True)
class Charge:
    """The charge for one release. release: its id. output, query, periods: of it, in words.

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
    periods: str = ""

    @classmethod
    def of(cls, output: Path, query: str, cost: ReleaseCost, periods: str = "") -> "Charge":
        """The charge for a release that is to come, whose id is still to be given."""
        rho = None if cost.rho is None else str(cost.rho)
        return cls("", str(output.resolve()), query, str(cost.epsilon), str(cost.delta), rho, periods=periods)

    @property
    def cost(self) -> ReleaseCost:
        """The cost of the release."""
        return ReleaseCost(
            Fraction(self.epsilon), Fraction(self.delta), None if self.rho is None else Fraction(self.rho)
        )


@dataclass(frozen=True, slots=True)
class ReleaseLedger:
    """changelog: whose it is. unit: of whom the costs speak. charges: of all releases so far.

    epsilon, delta: the budget of them all, as fractions; rho: that, where it is in rho. None where none was set.
    """

    changelog: str
    unit: str
    epsilon: str | None = None
    delta: str | None = None
    rho: str | None = None
    charges: tuple[Charge, ...] = ()
    asked: bool = False
    data: Fingerprint = field(default_factory=Fingerprint)

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
    def budget(self) -> ReleaseCost | None:
        """The budget of all releases together; None where none was set."""
        if self.rho is not None:
            return ReleaseCost(Fraction(0), Fraction(0), Fraction(self.rho))
        return None if self.epsilon is None else ReleaseCost(Fraction(self.epsilon), Fraction(self.delta or 0))

    @property
    def costs(self) -> list[ReleaseCost]:
        """The cost of each release."""
        return [charge.cost for charge in self.charges]

    def charged(self, charge: Charge) -> "ReleaseLedger":
        """With one more release, or as it is where that is in it.

        Raises BudgetExhausted where it is too much, and ValueError for a cost below 0, which would give some back, and
        for one that is not of the budget's kind.
        """
        if any(other.release == charge.release for other in self.charges):
            return self
        cost = charge.cost
        if min(cost.epsilon, cost.delta, cost.rho or 0) < 0:
            raise ValueError(f"a cost is not negative, got {charge.epsilon}, {charge.delta} and {charge.rho or 0}")
        charges = (*self.charges, charge)
        if self.budget is None:
            return replace(self.budgeted(cost), charges=charges)
        try:
            refuse_beyond(self.budget, self.costs, cost)
        except BudgetExhausted as error:
            first = "" if self.asked else "; nobody said what all may cost, so the first release set it: --budget"
            raise BudgetExhausted(f"{error}{first}") from error
        return replace(self, charges=charges)

    def budgeted(self, budget: ReleaseCost, asked: bool = False) -> "ReleaseLedger":
        """With this budget of all releases. asked: the curator set it, and the first release did not."""
        if budget.rho is not None:
            return replace(self, epsilon=None, delta=None, rho=str(budget.rho), asked=asked)
        return replace(self, epsilon=str(budget.epsilon), delta=str(budget.delta), rho=None, asked=asked)

    def drawn(self, release: str) -> Drawn | None:
        """How far the release with this id has drawn; None where it is not charged."""
        return next((charge.drawn for charge in self.charges if charge.release == release), None)

    def with_drawn(self, release: str, drawn: Drawn) -> "ReleaseLedger":
        """With the release as far as it now has drawn."""
        return replace(
            self, charges=tuple(replace(c, drawn=drawn) if c.release == release else c for c in self.charges)
        )

    def said(self) -> str:
        """States the cost of the releases in a sentence; by which composition, where it is not the sum."""
        budget, added = self.budget, total_cost(self.budget, self.costs)
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
        parts = [ReleaseCost(epsilon, delta).said()] * bool(epsilon or not self.spent_rho)
        return " and ".join([*parts, *[f"rho {number(self.spent_rho)}"] * bool(self.spent_rho)])


OTHERS = "as it holds what other releases have cost"


def read_ledger(path: Path) -> ReleaseLedger | None:
    """The ledger in this file, None where there is none. Raises BadState for one that is not whole."""
    try:
        written = path.read_bytes()
    except FileNotFoundError:
        return None
    import msgspec  # of the extra `central`

    try:
        whole = json.loads(written)
        if whole["version"] != VERSION:
            raise BadState(f"{path} was written by another version of changeling: go on with that one")
        ledger = msgspec.convert(whole["ledger"], ReleaseLedger)
        costs = [*ledger.costs, *([] if ledger.budget is None else [ledger.budget])]
        negative = any(min(cost.epsilon, cost.delta, cost.rho or 0) < 0 for cost in costs)
        if negative or any(charge.drawn.period < 0 for charge in ledger.charges) or _text(ledger) != written:
            raise ValueError
    except (ValueError, TypeError, KeyError, RecursionError, ZeroDivisionError, msgspec.DecodeError) as error:
        raise BadState(f"{path} is not a whole ledger: put it back as it was, {OTHERS}") from error
    return ledger


def _text(ledger: ReleaseLedger) -> bytes:
    fields = asdict(ledger)
    digest = sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
    return (json.dumps({"version": VERSION, "ledger": fields, "sha256": digest}, indent=2) + "\n").encode()


def write_ledger(path: Path, ledger: ReleaseLedger) -> None:
    """Put the ledger into this file, in one piece and on the disk, unless it is there already."""
    if read_ledger(path) != ledger:
        replaced(path, _text(ledger))


WAIT = 30.0
"""Seconds that a release waits for another to have written the ledger."""


@dataclass(frozen=True, slots=True)
class ReleaseAccount:
    """A release that is to be charged to the ledger at `path`.

    unit: what the release protects. charge: what it costs; its release id is still to come. changelog: the id that the
    ledger must have, or is made with; None for any. budget: of all releases, None to leave it as it is; the first
    release sets it to what it costs. data: the changelog, where that is a file.
    """

    path: Path
    unit: Unit
    charge: Charge
    changelog: str | None = None
    budget: ReleaseCost | None = None
    data: Path | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", self.path.resolve())  # a link would be replaced by a second ledger

    def doubts(self) -> Iterator[str]:
        """Where the ledger seems to be of other data, or these data seem to have another one, a sentence each."""
        if self.data is None:
            return
        if (ledger := read_ledger(self.path)) is not None:
            if ledger.data.rows and not ledger.data.fits(self.data):
                yield (
                    f"{self.data} does not begin as the data did that {self.path} was made for: where these are "
                    "others, name another ledger, --ledger"
                )
            return
        folders = dict.fromkeys([self.path.parent, self.data.resolve().parent, Path.cwd()])
        for path in sorted(path for folder in folders for path in folder.glob("*.ledger")):
            try:
                other = read_ledger(path)
            except (BadState, OSError):
                continue
            if other is not None and other.data.fits(self.data):
                yield (
                    f"{self.data} begins as the data of {path} do, by which {other.said()}: where they are the same, "
                    f"losses add up only in that one, --ledger {path}"
                )

    def opened(self, saved: SavedRelease | None = None) -> str:
        """The id of the ledger's changelog, which is made where there is none; nothing is charged.

        saved: the release's state, None before it has begun.
        Raises BadState for a damaged ledger, one of another changelog, and one that is gone; BudgetExhausted where
        the release is more than what is left; ValueError for another unit, and for a budget that would be raised.
        """
        with held(self.path, WAIT):
            ledger = self.checked(saved)
            write_ledger(self.path, ledger)
            return ledger.changelog

    def checked(self, saved: SavedRelease | None) -> ReleaseLedger:
        """The ledger that would be opened. Raises what `opened` does, and writes nothing."""
        ledger = self._ledger("" if saved is None else saved.changelog)
        self._charged(ledger, "" if saved is None else saved.charge)
        return ledger

    def settled(
        self,
        release: str,
        known: str,
        saved: SavedRelease | None = None,
        published: bool = False,
        charged: bool = False,
    ) -> ReleaseLedger:
        """Charge the release, durably, unless it is.

        release: its id. known: the changelog's, "" where there was none. saved: its state, None for what is drawn at
        once. published: the output holds rows of the state's flush. charged: it was charged before, so a ledger without
        it is an older one. Errors: as of `opened`, and BadState where output, state or ledger is an older one.
        """
        with held(self.path, WAIT):
            before = self._ledger(known)
            if charged and before.drawn(release) is None:
                raise BadState(
                    f"the ledger {self.path} is older than this release, which it does not hold: put the newer one back"
                )
            ledger = self._charged(before, release)
            if saved is not None:
                there = before.drawn(release) or Drawn(saved.period, saved.tag)
                ledger = ledger.with_drawn(release, self._said(lambda: there.settled(saved, published)))
            write_ledger(self.path, ledger)
            return ledger

    def announced(self, saved: SavedRelease, about: str) -> None:
        """Say, durably, that a flush is about to be drawn. about: its tag. saved: the state before it.

        Raises BadState where another process drew from the same state, and for a ledger that was changed meanwhile.
        """
        self._follow(saved, lambda drawn: drawn.announced(saved, about))

    def marked(self, saved: SavedRelease) -> None:
        """Say, durably, that the flush of the state is drawn and will be published. Errors: as of `announced`."""
        self._follow(saved, lambda drawn: drawn.marked(saved))

    def _follow(self, saved: SavedRelease, step: Callable[[Drawn], Drawn]) -> None:
        with held(self.path, WAIT):
            ledger = self._ledger(saved.changelog)
            there = ledger.drawn(saved.charge)
            if there is None:
                raise BadState(f"{self.path} no longer holds this release: put it back, {OTHERS}")
            write_ledger(self.path, ledger.with_drawn(saved.charge, self._said(lambda: step(there))))

    def _said(self, step: Callable[[], Drawn]) -> Drawn:
        try:
            return step()
        except BadState as error:
            raise BadState(f"{self.charge.output}, {self.path.name}: {error}") from error

    def _charged(self, ledger: ReleaseLedger, release: str) -> ReleaseLedger:
        for charge in ledger.charges:
            if charge.release == release and _goes_on_elsewhere(charge, Path(self.charge.output)):
                raise BadState(
                    f"{self.charge.output} goes on from a copy of the state of {charge.output}, which is charged once: "
                    "both would draw for the same nodes; go on with that one, or choose another output"
                )
        try:
            return ledger.charged(replace(self.charge, release=release))
        except BudgetExhausted as error:
            raise BudgetExhausted(f"{self.path.name}: {error}") from error

    def _ledger(self, known: str) -> ReleaseLedger:
        ledger = read_ledger(self.path)
        if ledger is None and known:
            raise BadState(f"{self.path}, which this release is charged to, is gone: put it back, {OTHERS}")
        if ledger is None:
            data = Fingerprint() if self.data is None else fingerprint_of(self.data)
            ledger = ReleaseLedger(self.changelog or token_hex(8), self.unit.name, data=data)
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

    def _with_budget(self, ledger: ReleaseLedger) -> ReleaseLedger:
        if (wanted := self.budget) is None:
            return ledger
        if ledger.asked and (there := ledger.budget) is not None:
            if (there.rho is None) != (wanted.rho is None):
                raise ValueError(f"the budget in {self.path} was set once, as {there.said()}: lower it in kind")
            parts = ((wanted.epsilon, there.epsilon), (wanted.delta, there.delta), (wanted.rho or 0, there.rho or 0))
            if any(a > b for a, b in parts):
                raise ValueError(f"the budget in {self.path} was set once, and is lowered at most, never raised")
        added = total_cost(wanted, ledger.costs)
        if added is None or not added.fits(wanted):
            raise BudgetExhausted(f"{self.path}: {ledger.said()}, which is more than the budget asked for")
        return ledger.budgeted(wanted, asked=True)


def _goes_on_elsewhere(charge: Charge, output: Path) -> bool:
    """True if the output that was charged is another one and still has the state of this release: it was copied."""
    charged = Path(charge.output)
    if charged.absolute() == output.absolute() or (charged.exists() and output.exists() and charged.samefile(output)):
        return False
    try:
        there = begun(charged.with_name(charged.name + ".state"))
    except BadState:
        return False
    return there is not None and there.charge == charge.release


def ledger_beside(source: object) -> Path | None:
    """Where the ledger of a changelog is that is a file: CHANGELOG.ledger, behind links; None for any other."""
    return Path(f"{Path(source).resolve()}.ledger") if isinstance(source, str | Path) else None
