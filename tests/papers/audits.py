"""What an audit of neighbours finds: events that one shows more often than e^ε times the other."""

from math import exp, sqrt


def excess(pairs, epsilon, least=200):
    """By how many standard errors a count exceeds e^ε times its neighbour's, the most over events and both directions.

    pairs: of counts from equally many runs. An event that the neighbour never shows counts as well: it is the worst
    there can be. Events that neither shows `least` times are left out.
    """
    worst = 0.0
    for pair in pairs:
        if max(pair) >= least:
            for a, b in (pair, pair[::-1]):
                worst = max(worst, (a - exp(epsilon) * b) / sqrt(a + exp(2 * epsilon) * max(b, 1)))
    return worst
