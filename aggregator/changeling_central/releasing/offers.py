"""The table of what `changeling release` offers: the command, the function and the docs all read it here."""

from typing import cast

from ..mechanism import State
from .counters import COUNTER, DYNAMIC, INFINITE, PAN_PRIVATE, PARTITIONING
from .hierarchies import DCR, HDCR
from .offer import Offer

OFFERS: dict[str, Offer[object]] = {}
"""By name, in the order of the help."""


def register(offer: Offer[State]) -> None:
    """Offer one more mechanism to `changeling release`. ValueError for a name that is taken."""
    if offer.name in OFFERS:
        raise ValueError(f"there is a mechanism {offer.name!r} already")
    OFFERS[offer.name] = cast("Offer[object]", offer)  # its states go back to the mechanism they came from, and nowhere


def offered(name: str) -> Offer[object]:
    """The offer of this name. ValueError for a name that is none."""
    try:
        return OFFERS[name]
    except KeyError:
        raise ValueError(f"there is no mechanism {name!r}: choose {', '.join(OFFERS)}") from None


register(HDCR)
register(DCR)
register(COUNTER)
register(PAN_PRIVATE)
register(INFINITE)
register(PARTITIONING)
register(DYNAMIC)
