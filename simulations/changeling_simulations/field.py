"""What goes wrong while a survey runs: who comes late, leaves, comes back as another, is offline, or is not heard.

All rates are per period. Nothing here depends on answers, but for `reluctance`.
"""

from dataclasses import dataclass, fields

from changeling_protocol import Node


@dataclass(frozen=True, slots=True)
class Field:
    """How a population's devices fare; as it stands, all enrol before the first period ends and are always heard.

    arrivals: how many enrol in each period after the first, as a share of all who enrolled before; 0.03 is growth by
    3% a period. What an arrival held before it enrolled, nobody asks: it begins with the answer that it has then.
    uninstalls: the chance to leave for good in a period, after an entry's first.
    reinstalls: the chance, likewise, to leave and come back at once as a new entry, which draws everything afresh. In a
    closed cohort nobody can come back.
    offline: the chance that an entry's closing is never heard.
    spell: how many periods a spell offline lasts, mean; None if each period has an independent chance.
    late: the chance that what is heard of a closing arrives only after the next period has closed, but within grace.
    outage: the periods whose closings the server loses, all of them; one that starts late is an outage from 0 on.
    reluctance: of each state 0..z the chance that an entry which holds it as a period closes is not heard; none if
    empty.
    Raises ValueError, by name, for a rate that is not within 0 to 1, and for a spell that is too short.
    """

    arrivals: float = 0
    uninstalls: float = 0
    reinstalls: float = 0
    offline: float = 0
    spell: float | None = None
    late: float = 0
    outage: Node | None = None
    reluctance: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for name in ("arrivals", "uninstalls", "reinstalls", "offline", "late"):
            _check_rate(name, getattr(self, name))
        for rate in self.reluctance:
            _check_rate("reluctance", rate)
        if self.offline == 1:
            raise ValueError("offline must be below 1: somebody has to be heard")
        if self.spell is not None and not self.spell >= max(1, self.offline / (1 - self.offline)):
            raise ValueError(
                f"spells must last one period or longer, and the longer the more are offline: {self.spell:g} periods "
                f"are too few for offline = {self.offline:g}"
            )

    @property
    def is_quiet(self) -> bool:
        """Whether nothing goes wrong at all."""
        return all(getattr(self, each.name) == each.default for each in fields(self) if each.name != "spell")

    @property
    def falling_silent(self) -> float:
        """The chance that an entry which is online goes offline with the next period."""
        return self.offline / (1 - self.offline) * self.returning

    @property
    def returning(self) -> float:
        """The chance that an entry which is offline is back with the next period."""
        return 1 - self.offline if self.spell is None else 1 / self.spell

    def is_out(self, period: int) -> bool:
        """Whether the server loses this period's closing."""
        return self.outage is not None and self.outage.start < period <= self.outage.end


def _check_rate(name: str, rate: float) -> None:
    if not 0 <= rate <= 1:
        raise ValueError(f"{name} must be a rate from 0 to 1, got {rate:g}")
