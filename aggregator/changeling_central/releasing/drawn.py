"""How far a release has drawn, as its ledger remembers it: what an older output and an older state cannot know.

Every flush of a release has a random tag. The ledger has the tag of the last flush that may have been published, and
that of one which is about to be drawn; the state has its own tag and the one before. The order of writes is

    ledger: about to draw under t'      state: drawn under t', after t      ledger: t' is drawn      output: its rows

Killed between any two, a release goes on: a t' that never reached the state was seen by nobody, one that did is marked
as drawn and its rows are published. A state that was put back has a tag that the ledger has left behind, a ledger that
was put back lacks the state's tag, and of two processes that draw after the same tag one finds that the other has
announced itself, before it publishes. So a flush is drawn twice, or its charge forgotten, only where every file that
was written since was put back together.
"""

from dataclasses import dataclass, replace

from ..errors import BadState


@dataclass(frozen=True, slots=True)
class Mark:
    """What a state knows of its flush. period: its last one. tag: of it. before: of the one before it, "" for none."""

    period: int
    tag: str
    before: str


@dataclass(frozen=True, slots=True)
class Drawn:
    """What a ledger knows of a release.

    period: the last that may have been published. tag: of its flush, "" before the release has begun. about: the tag of
    a flush that is about to be drawn, "" for none.
    """

    period: int = 0
    tag: str = ""
    about: str = ""

    def settled(self, mark: Mark, published: bool) -> "Drawn":
        """What the ledger knows once a release goes on from this state.

        published: whether the output holds rows of the state's flush already.
        Raises BadState, which says what is older than what, for a state that does not follow what the ledger knows.
        """
        if mark.tag == self.tag:
            return self
        if mark.tag == self.about and mark.before == self.tag and not published:  # killed before it was marked
            return Drawn(mark.period, mark.tag)
        if mark.period < self.period:
            raise BadState(
                f"this output is older than what the ledger says was drawn: its state ends with period {mark.period}, "
                f"and the ledger knows of draws until period {self.period}, so going on would draw again for what was "
                "published; put the newer output and state back, or choose another output"
            )
        if mark.period > self.period or mark.tag == self.about:
            raise BadState(
                f"the ledger is older than this output: it knows of draws until period {self.period}, and the state "
                f"ends with period {mark.period}, so what was charged since may be missing; put the newer ledger back"
            )
        raise BadState(
            f"the draws until period {self.period} that the ledger knows of are others than this state's: the release "
            "went on from a copy or a backup; go on with that one, or choose another output"
        )

    def announced(self, mark: Mark, about: str) -> "Drawn":
        """With a flush that is about to be drawn after the state's. BadState where another process was faster."""
        if mark.tag != self.tag:
            raise _fork()
        return replace(self, about=about)

    def marked(self, mark: Mark) -> "Drawn":
        """With the flush of this state as drawn. BadState where another process was faster: nothing is published."""
        if (self.tag, self.about) != (mark.before, mark.tag):
            raise _fork()
        return Drawn(mark.period, mark.tag)


def _fork() -> BadState:
    return BadState("another process goes on with a copy of this release: nothing of this flush was published")
