"""The table of what `changeling release` offers: the command, the function and the docs all read it here."""

from functools import cache
from importlib.metadata import entry_points
from typing import cast

from ..mechanism import State
from .best import BEST
from .hierarchies import DCR, HDCR
from .levels import AHEAD, SQUARE_ROOT
from .offer import Offer
from .windows import SWCR

_OFFERS: dict[str, Offer[object]] = {}
"""By name, in the order of the help."""


def register(offer: Offer[State]) -> None:
    """Offer one more mechanism to `changeling release`. ValueError for a name that is taken."""
    if offer.name in _OFFERS:
        raise ValueError(f"there is a mechanism {offer.name!r} already")
    # a state of any type will do: it goes back to where it came from
    _OFFERS[offer.name] = cast("Offer[object]", offer)


def all_offers() -> tuple[Offer[object], ...]:
    """Everything that is offered, in the order of the help."""
    _load()
    return tuple(_OFFERS.values())


def offered(name: str) -> Offer[object]:
    """The offer of this name. ValueError for a name that is none."""
    _load()
    try:
        return _OFFERS[name]
    except KeyError:
        raise ValueError(f"there is no mechanism {name!r}: choose {', '.join(_OFFERS)}") from None


@cache
def _load() -> None:
    """Let installed packages register their offers, by their entry points in the group `changeling.mechanisms`."""
    for entry_point in entry_points(group="changeling.mechanisms"):
        entry_point.load()()


register(BEST)
register(AHEAD)
register(SQUARE_ROOT)
register(HDCR)
register(DCR)
register(SWCR)
