"""The optimal plan for a wish beside the plans that others would make, and a verdict in words."""

from dataclasses import dataclass

from threadpoolctl import threadpool_limits

from .optimal import ONE_THREAD, Planned, optimal_plan
from .option import Option
from .references import flat, panel, paper_hierarchy, sampled_hierarchy
from .wish import Wish

NAMES = ("paper", "flat", "sampled", "panel", "optimal")
"""What each plan is called on a command line, in the order of the table."""
DONE = {
    "panel": "report their state now and then",
    "changes": "report changes",
    "hierarchy": "report changes on several widths",
    "mix": "report their state now and then, and changes between",
}
"""What the devices of each kind of group do."""
WHY = {
    "panel": "for this horizon and budget a few states tell more than many changes do",
    "changes": "answers change seldom, and that one did not is told with little noise",
    "hierarchy": "over so many periods noise adds up, and wide nodes keep it down",
    "mix": "the budget has room for both, and changes carry the states from one report to the next",
}
"""Why most devices of a plan are in groups of a kind."""
LEAST_NAMED = 0.005
"""Kinds of groups with a smaller share are not named."""
ABOUT_AS_GOOD = 1.02
"""A plan that needs fewer than so many times the devices is about as good."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Plans for one wish, side by side.

    wish: what they are for.
    planned: the optimal plan, and how sure it is that it is.
    options: the plans by NAMES; those that the budget or the horizon has no room for are left out.
    """

    wish: Wish
    options: dict[str, Option]
    planned: Planned

    def choose(self, name: str) -> Option:
        """The plan of this name. Raises ValueError, which lists the names, if it is not among the options."""
        if name not in self.options:
            raise ValueError(f"no plan {name!r} for this wish: choose one of {', '.join(self.options)}")
        return self.options[name]

    @property
    def panel_beats_every_hierarchy(self) -> bool:
        """Whether the panel has less error than every hierarchy of changes among the options."""
        best = self._best_hierarchy
        return "panel" in self.options and (best is None or self._error("panel") < best.error(self.wish))

    @property
    def verdict(self) -> str:
        """Which kind of plan wins, by how much, and what the optimal plan is made of."""
        wish, optimal = self.wish, self.planned.option
        best = self._best_hierarchy
        words = []
        if "panel" in self.options and best is not None:
            ratio = best.error(wish) / self._error("panel")
            if self.panel_beats_every_hierarchy:
                words.append(f"A panel beats every hierarchy here: {ratio:.2g} times less error than {best.title}.")
            else:
                words.append(f"A hierarchy beats every panel here: {best.title}, {1 / ratio:.2g} times less error.")
        words.append(f"The optimal plan: {plan_in_words(self.planned)}.")
        rivals = [option for name, option in self.options.items() if name != "optimal"]
        rival = min(rivals, key=lambda option: option.error(wish), default=None)
        if rival is not None:
            gained = (rival.error(wish) / optimal.error(wish)) ** 2
            words.append(
                f"It needs {gained:.3g} times fewer devices than {rival.title}, the best of the others."
                if gained > ABOUT_AS_GOOD
                else f"Nothing is gained over {rival.title}, which is simpler."
            )
        return " ".join(words)

    @property
    def _best_hierarchy(self) -> Option | None:
        hierarchies = [self.options[name] for name in ("paper", "flat", "sampled") if name in self.options]
        return min(hierarchies, key=lambda option: option.error(self.wish), default=None)

    def _error(self, name: str) -> float:
        return self.options[name].error(self.wish)


def compare_plans(wish: Wish) -> Comparison:
    """The optimal plan for a wish beside the paper's hierarchy, a flat release, a sampled hierarchy and a panel.

    Raises ValueError if the budget is too small to report anything.
    """
    with threadpool_limits(ONE_THREAD):
        planned = optimal_plan(wish)
        made = (paper_hierarchy(wish), flat(wish), sampled_hierarchy(wish), panel(wish), planned.option)
    options = {name: option for name, option in zip(NAMES, made, strict=True) if option is not None}
    return Comparison(wish, options, planned)


def plan_in_words(planned: Planned) -> str:
    """What the devices of a plan do, and why those."""
    shares = sorted(((planned.share_of(kind), kind) for kind in set(planned.kinds)), reverse=True)
    done = ", ".join(f"{share:.0%} of the devices {DONE[kind]}" for share, kind in shares if share >= LEAST_NAMED)
    return f"{done}: {WHY[shares[0][1]]}"
