"""The ratchet, its subkeys and the draws made from them."""

from collections import Counter
from itertools import combinations

import pytest
from changeling_protocol import EntrySecret, KaryResponse, Node, Odds, StateSpace, Track
from changeling_protocol.entry_secret import Subkeys
from changeling_protocol.plan import draw_nodes
from scipy.stats import chisquare

from .examples import mixed, survey

SECRET = EntrySecret(3, bytes(range(32)))
SURVEY = survey().id


def test_a_fresh_secret_is_new_and_shows_nothing():
    """Two are never the same, and printing one does not give it away."""
    first, second = EntrySecret.fresh(1), EntrySecret.fresh(1)
    assert first.key != second.key
    assert first.key.hex() not in repr(first)
    assert repr(first.key) not in repr(first)


def test_the_ratchet_goes_forward_only():
    """Steps add up; there is no way back."""
    assert SECRET.advanced(5).advanced(9) == SECRET.advanced(9)
    assert SECRET.advanced(3) == SECRET
    assert len({SECRET.advanced(i).key for i in range(3, 50)}) == 47
    with pytest.raises(ValueError, match="cannot go back"):
        SECRET.advanced(2)


def test_every_label_survey_node_and_input_has_coins_of_its_own():
    """No two streams or ids are the same; asking again gives the same."""
    one, again, elsewhere = SECRET.subkeys(SURVEY), SECRET.subkeys(SURVEY), Subkeys(SECRET.key, b"s" * 16)
    node, n = Node(2, 3), 2**128
    streams = [
        one.response_coins(0, node, 0).below(n),
        one.response_coins(0, node, 1).below(n),
        one.response_coins(1, node, 0).below(n),
        one.response_coins(0, Node(1, 3), 0).below(n),
        one.delay_coins(3).below(n),
        one.group_coins().below(n),
        one.node_coins(0).below(n),
        int.from_bytes(one.report_id(0, node)),
        int.from_bytes(one.report_id(1, node)),
        elsewhere.response_coins(0, node, 0).below(n),
        int.from_bytes(elsewhere.report_id(0, node)),
    ]
    assert len(set(streams)) == len(streams)
    assert again.response_coins(0, node, 0).below(n) == streams[0]
    assert again.report_id(0, node) == one.report_id(0, node)


def test_groups_are_drawn_by_their_shares():
    """Chi-squared over 6,000 secrets against shares 3:2:1, false-alarm rate 1e-6, secrets fixed."""
    plan = mixed(3, 8)
    drawn = Counter(plan.draw_group(Subkeys(i.to_bytes(32), SURVEY).group_coins()) for i in range(6000))
    assert chisquare([drawn[g] for g in range(3)], [3000, 2000, 1000]).pvalue > 1e-6


def test_random_nodes_are_a_uniform_subset():
    """Chi-squared over 6,000 secrets: all 10 pairs of 5 nodes alike, false-alarm rate 1e-6, secrets fixed."""
    track = Track(1, KaryResponse(StateSpace(2), Odds(3, 1)), 0, 5, reported=2)
    drawn = Counter(tuple(draw_nodes(track, Subkeys(i.to_bytes(32), SURVEY).node_coins(0))) for i in range(6000))
    assert set(drawn) == set(combinations(range(1, 6), 2))
    assert chisquare(list(drawn.values())).pvalue > 1e-6
