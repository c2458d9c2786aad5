"""The paragraph for an app's privacy notice says what the survey says."""

from dataclasses import replace

from changeling_client import explain, privacy_notice
from changeling_protocol import Breakdown, Calendar, ExpectedChanges

from ..protocol.examples import joint_plan, mixed, survey

DAILY = Calendar(1_798_761_600, 86_400, 8)


def test_a_notice_is_one_paragraph_of_what_is_asked_sent_concluded_public_and_withdrawn():
    """With the same figures as the explanation."""
    notice = privacy_notice(survey(calendar=DAILY, minimum=50))
    assert "\n" not in notice
    for words in (
        'the question "What do you drink?"; the answers that it tells apart are "tea", "coffee" or "neither".',
        "From 2027-01-01 to 2027-01-09 your device sends at most 14 randomized reports on how your answer has changed. "
        "They fall due at most once every day; those that fall due together go in one message, encrypted for",
        'such as that you ever answered "tea", can come to be thought at most 99.9984% and at least 0.00002% likely',
        "from at least 50 reports each",
        "No relay stands between",
        "You can withdraw in this app at any time",
        "cannot be found again",
    ):
        assert words in notice
    (one,) = explain(survey()).one_report
    assert str(one) in notice


def test_a_relay_and_public_values_are_named():
    """Where the survey has them, and no sentence says the contrary."""
    platform = Breakdown("platform", ("linux", "mac"))
    notice = privacy_notice(replace(survey(), breakdowns=(platform,), relay="https://relay.example.org"))
    assert "platform (linux, mac)" in notice
    assert "A relay at https://relay.example.org stands between" in notice
    assert "No relay" not in notice


def test_what_is_reported_is_named_changes_states_or_both():
    """By the plan's tracks."""
    assert "on how your answer has changed or which answer you hold." in privacy_notice(survey(joint_plan(3, 8)))
    assert "on how your answer has changed." in privacy_notice(survey())
    (panel, *_) = mixed(3, 8).groups
    alone = survey(replace(mixed(3, 8), groups=(panel,)))
    assert "on which answer you hold. They fall due at most once every minute;" in privacy_notice(alone)


def test_a_notice_tells_nothing_that_a_person_need_not_know():
    """Not what the designer expects, nor an epsilon."""
    notice = privacy_notice(survey())
    assert notice == privacy_notice(survey().asking(expected=ExpectedChanges(1, 1)))
    assert "epsilon" not in notice.lower()
