"""How values stand in a vector file, which is JSON: docs/conformance.md, "Notation"."""

from itertools import pairwise

EXACT = 2**53 - 1
"""The largest integer that every reader of JSON holds exactly."""


def number(value):
    """An integer as a number, or as a string of digits where a reader of JSON might round it."""
    return value if abs(value) <= EXACT else str(value)


def fields(value):
    """Maps, lists, strings and integers as they are in JSON, bytes in hex."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {key: fields(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [fields(each) for each in value]
    return number(value) if isinstance(value, int) and not isinstance(value, bool) else value


def tagged(value):
    """A canonical value with the type of each part: ["int", "5"], ["bin", "00ff"], ["map", [["key", …], …]]."""
    match value:
        case None:
            return ["nil"]
        case bool():
            return ["bool", value]
        case int():
            return ["int", str(value)]
        case str():
            return ["str", value]
        case bytes():
            return ["bin", value.hex()]
        case list():
            return ["list", [tagged(each) for each in value]]
        case dict():
            return ["map", [[key, tagged(value[key])] for key in sorted(value)]]
    raise TypeError(type(value))


def odds(value):
    """Two integers of any length."""
    return [str(value.favoured), str(value.other)]


def some(count, most):
    """Numbers below a count, at most so many and spread evenly; the first and the last are among them."""
    return [*range(count)] if count <= most else sorted({i * (count - 1) // (most - 1) for i in range(most)})


def drawn_near_every_edge(total, symbol_at, most):
    """Some integers below a total, spread evenly; and between any two of them a pair at which the symbol changes."""
    spread = some(total, most)
    edges = set()
    for low, high in pairwise(spread):
        while high - low > 1:  # symbols may change more than once in between: this finds one of the edges
            middle = (low + high) // 2
            low, high = (middle, high) if symbol_at(middle) == symbol_at(low) else (low, middle)
        edges |= {low, high}
    return sorted({*spread, *edges})


class LoggedCoins:
    """Coins that keep what each draw was to be below, and what came."""

    def __init__(self, coins):
        self._coins, self.log = coins, []

    def below(self, n):
        drawn = self._coins.below(n)
        self.log.append([str(n), str(drawn)])
        return drawn

    def taken(self):
        """The draws since the last time."""
        log, self.log = self.log, []
        return log
