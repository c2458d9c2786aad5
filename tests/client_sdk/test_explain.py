"""What an app and a person are told in words: of a survey, against all that an adversary could see, by enumeration; of
reports, those sent and those to come; a privacy notice, the ledger, errors and log lines.

The enumerations use no charge: probabilities of transcripts come from the randomizers' weights, and posteriors from
them.
"""

import re
from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import partial
from itertools import permutations, product
from pathlib import Path

import changeling_client
import pytest
from changeling_client import ClientError, Recorded, explain, privacy_notice
from changeling_client.explanation import PLACES, conclude, percent_down, percent_up, said, truthfulness
from changeling_client.testing import make_survey
from changeling_protocol import (
    AtMost,
    Breakdown,
    Calendar,
    CustomResponse,
    ExpectedChanges,
    Group,
    Joint,
    KaryChange,
    KaryResponse,
    MutationSpace,
    Odds,
    Question,
    Report,
    SignedSubset,
    StateSpace,
    SubsetSelection,
    Track,
    UnaryEncoding,
)
from changeling_statistics.testing import name, possible
from hypothesis import given
from hypothesis import strategies as st

from ..contracts.randomizers import LARGER, RANDOMIZERS
from ..enumeration import agrees, all_inputs, changelogs, defined_law, probability, worst_ratio_of_pairs
from ..protocol.examples import joint_plan, mixed, survey
from .device import PLAIN, START, asking

LAST_PLACE = Decimal(f"1e-{PLACES}")


small = partial(asking, start=1_800_000_000, periods=2, answers=2, constraint=AtMost(2), grace=600)
ONE, TWO = MutationSpace(1), MutationSpace(2)
SMALL = {
    "k-rr of changes": small(Track(1, KaryResponse(TWO, Odds(3, 1)), 0, 2)),
    "k-rr of states": small(Track(1, KaryResponse(StateSpace(2), Odds(7, 2)), 0, 2)),
    "silent k-rr": small(Track(1, KaryChange(TWO, Odds(3, 1)), 0, 3), periods=3, constraint=AtMost(1)),
    "signed subsets": small(Track(1, SignedSubset(TWO, Odds(5, 1)), 0, 3), periods=3),
    "subset selection": small(Track(1, SubsetSelection(StateSpace(2), Odds(3, 1), 2), 0, 2)),
    "unary": small(Track(1, UnaryEncoding(StateSpace(2), Odds(3, 1)), 0, 2)),
    "one drawn node": small(Track(1, KaryResponse(StateSpace(2), Odds(9, 1)), 0, 3, reported=1), periods=3),
    "closed": small(Track(1, KaryResponse(StateSpace(2, null=False), Odds(4, 1)), 0, 2), closed=True),
    "joint": small(
        Group.jointly([Track(1, SignedSubset(ONE, Odds(2, 1)), 0, 2)], Joint(Odds(9, 1), 2, (1,), (2,))), answers=1
    ),
}


@pytest.mark.parametrize("case", SMALL)
def test_no_posterior_leaves_what_is_explained_and_some_adversary_attains_it(case):
    """Over every pair of changelogs and every transcript: whoever holds one for p likely and else the other.

    Any other adversary's posterior, as of whether an answer was ever held, is a mean of such ones. Attained to the
    last place but for the survey's own rounding of its epsilon, to millionths.
    """
    asked = SMALL[case]
    (group,) = asked.plan.groups
    worst = worst_ratio_of_pairs(
        group, list(changelogs(len(asked.answers), asked.calendar, asked.constraint, asked.closed))
    )
    for stated in explain(asked).conclusions:
        p = Fraction(stated.before)
        highest, lowest = p * worst / (p * worst + 1 - p), p / (p + (1 - p) * worst)
        assert lowest * Fraction(999_998, 10**6) - Fraction(LAST_PLACE) <= stated.at_least <= lowest
        assert highest <= stated.at_most <= highest * Fraction(1_000_002, 10**6) + Fraction(LAST_PLACE)


def test_having_ever_held_an_answer_can_be_told_as_far_as_it_is_said():
    """The example that is given is no weaker than the worst question: here somebody can come as far."""
    asked = SMALL["k-rr of changes"]
    (group,) = asked.plan.groups
    every = list(changelogs(2, asked.calendar, asked.constraint))
    tea, none = (
        [defined_law(group, all_inputs(group, states)) for states in every if (1 in states) == held]
        for held in (True, False)
    )
    worst = max(one[sent] / other[sent] for one, other in product(tea, none) for sent in one)
    example = explain(asked).conclusions[1]
    assert Fraction(example.at_most) - worst / (worst + 9) < Fraction(1, 10**6)


def names_the_truth(randomizer, symbol, true):
    """What it is to tell the truth: to be it, to tick it, or else to be likelier with it than with nothing to tell."""
    match randomizer:
        case KaryResponse():
            return symbol == true
        case UnaryEncoding():
            return bool(symbol >> true & 1)
    return agrees(randomizer, symbol, true)


def chance(randomizer, given_input, of_input):
    """How likely what is sent for one input names another as the truth."""
    return sum(
        probability(randomizer, symbol, given_input)
        for symbol in range(randomizer.symbols)
        if names_the_truth(randomizer, symbol, of_input)
    )


@pytest.mark.parametrize("randomizer", RANDOMIZERS + LARGER, ids=name)
def test_one_report_tells_the_truth_just_as_often_as_is_said(randomizer):
    """Enumerated from the weights, for every input that tells; and without truth, by luck."""
    stated = truthfulness(randomizer)
    inputs = possible(randomizer.space)
    assert stated.changes == randomizer.space.reports_changes
    if randomizer.kind in ("custom", "based-states"):  # for which a best guess counts
        best = [max(probability(randomizer, o, u) for u in inputs) for o in range(randomizer.symbols)]
        assert (stated.truth, stated.luck) == (Fraction(sum(best), len(inputs)), Fraction(1, len(inputs)))
        return
    silent = isinstance(randomizer, KaryChange | SignedSubset)  # where nothing has changed
    telling = [u for u in inputs if u or not silent]
    assert {chance(randomizer, u, u) for u in telling} == {stated.truth}
    if isinstance(randomizer, UnaryEncoding):
        lucky = {chance(randomizer, u, v) for u, v in product(telling, telling) if u != v}
    elif len(telling) < len(inputs):
        lucky = {chance(randomizer, 0, v) for v in telling}
    else:  # a symbol that is drawn uniformly, whatever the truth
        lucky = {
            Fraction(sum(names_the_truth(randomizer, o, v) for o in range(randomizer.symbols)), randomizer.symbols)
            for v in telling
        }
    assert lucky == {stated.luck}


@pytest.mark.parametrize("epsilon", ["0", "0.000001", "0.5", "1", "8", "25", "43", "99.9", "100", "1000000000"])
@pytest.mark.parametrize("before", ["0.000001", "0.01", "0.1", "0.5", "0.99"])
def test_bounds_are_rounded_against_us_and_by_less_than_the_last_place(epsilon, before):
    """Against 90 digits; an epsilon without end is certainty."""
    stated = conclude(Decimal(before), Decimal(epsilon))
    with localcontext(prec=90):
        p, ratio = Decimal(before), min(Decimal(epsilon), Decimal(150)).exp()
        above, below = p * ratio / (p * ratio + 1 - p), p / (p + (1 - p) * ratio)
        assert below - LAST_PLACE < stated.at_least <= below <= above <= stated.at_most < above + LAST_PLACE


@pytest.mark.parametrize(("before", "epsilon"), [("0", "1"), ("1", "1"), ("0.5", "-1"), ("-0.1", "1")])
def test_what_is_no_probability_is_refused(before, epsilon):
    """Nobody who is certain can be moved, and no loss is negative."""
    with pytest.raises(ValueError, match="probability between 0 and 1"):
        conclude(Decimal(before), Decimal(epsilon))


def test_nothing_depends_on_the_apps_decimal_context():
    """Of one digit, and rounding down."""
    expected = explain(SMALL["joint"])
    with localcontext(prec=1, rounding="ROUND_DOWN"):
        explained = explain(replace(SMALL["joint"]))
        shown = str(explained)
    assert (explained, shown) == (expected, str(expected))


@given(st.integers(0, 10**12))
def test_a_percentage_never_makes_it_look_better(trillionths):
    """Upper figures are rounded up, lower ones down, by less than a tenth of the distance to 0% and 100%, if shown."""
    share = Fraction(trillionths, 10**12)
    up, down = (Fraction(shown.removesuffix("%")) / 100 for shown in (percent_up(share), percent_down(share)))
    assert 0 <= down <= share <= up <= 1
    assert up - down <= max(min(share, 1 - share) / 10, Fraction(1, 10**8))


def test_a_person_reads_no_epsilon_but_in_the_experts_line():
    """Nor odds, nor any Greek. Of a plan of several groups the one that reports most is told."""
    assert explain(survey(mixed(3, 8))).reports == 8
    for asked in (survey(), survey(joint_plan(3, 8)), *SMALL.values()):
        *lines, experts = str(explain(asked)).splitlines()
        assert experts.startswith("- For experts: ")
        assert f"epsilon {asked.epsilon} over the whole survey" in experts
        assert f"{asked.per_week} a week, which bounds no single week or report" in experts
        words = "\n".join(lines).lower()
        assert not any(word in words for word in ("epsilon", "ε", "nats", " : 1", "entry", "randomiz"))


def test_the_words_hold_what_a_person_would_ask():
    """The figures of the example, what is public, when it ends, a backup, and that surveys add up."""
    shown = Breakdown("platform", ("linux", "mac"))
    asked = replace(SMALL["k-rr of states"], breakdowns=(shown,), stratum_changes=2, follows=bytes(16))
    words = str(explain(asked))  # two states at odds of 7:2: a ratio of 49:4 for both reports
    assert (
        "it was 10% likely that you ever answered “tea” can at most come to think it 58%, and at least 0.89%" in words
    )
    assert "64% of the time; by luck it would 33% of the time" in words
    assert (
        "at most 2 reports, until 2027-01-15 08:02 UTC; one that is late may leave it until 2027-01-15 08:12" in words
    )
    assert "platform (linux, mac); it may change 2 times" in words
    assert "put back once while the survey runs, and nothing notices" in words
    assert "from 10% to 94.4% at most" in words
    assert "goes on from another one" in words


DAILY = Calendar(1_798_761_600, 86_400, 8)


def test_a_notice_is_one_paragraph_of_what_is_asked_sent_concluded_public_and_withdrawn():
    """With the same figures as the explanation; and not what the designer expects, nor an epsilon."""
    notice = privacy_notice(survey(calendar=DAILY, minimum=50))
    assert "\n" not in notice
    for words in (
        "the question “What do you drink?”; the answers that it tells apart are “tea”, “coffee” or “neither”.",
        "From 2027-01-01 to 2027-01-09 your device sends at most 14 randomized reports on how your answer has changed. "
        "They fall due at most once every day; those that fall due together go in one message, encrypted for",
        "such as that you ever answered “tea”, can come to be thought at most 99.9984% and at least 0.00002% likely",
        "from at least 50 reports each",
        "on how your answer has changed.",
        "No relay stands between",
        "You can withdraw in this app at any time",
        "cannot be found again",
    ):
        assert words in notice
    (one,) = explain(survey()).one_report
    assert str(one) in notice
    assert "epsilon" not in notice.lower()
    assert privacy_notice(survey()) == privacy_notice(survey().asking(expected=ExpectedChanges(1, 1)))
    platform, (panel, *_) = Breakdown("platform", ("linux", "mac")), mixed(3, 8).groups
    states = survey(replace(mixed(3, 8), groups=(panel,)))
    notice = privacy_notice(replace(states, breakdowns=(platform,), relay="https://relay.example.org"))
    assert "on which answer you hold. They fall due at most once every minute;" in notice
    assert "platform (linux, mac)" in notice
    assert "A relay at https://relay.example.org stands between" in notice
    assert "No relay" not in notice
    assert "on how your answer has changed or which answer you hold." in privacy_notice(survey(joint_plan(3, 8)))


STATES, CHANGES, ODDS = StateSpace(3), MutationSpace(3), Odds(3, 1)
SAYING = {
    "the paper's pairs": KaryResponse(MutationSpace(3, repeats=True), ODDS),
    "k-RR of states": KaryResponse(STATES, ODDS),
    "k-RR of changes": KaryResponse(CHANGES, ODDS),
    "k-RR that is silent": KaryChange(CHANGES, ODDS),
    "signed subsets": SignedSubset(CHANGES, ODDS, spoken=Fraction(1, 2)),
    "subsets": SubsetSelection(STATES, ODDS, 2),
    "bits": UnaryEncoding(STATES, ODDS),
    "a matrix": CustomResponse(STATES, tuple(tuple(2 if o == u else 1 for u in range(4)) for o in range(4))),
}


def all_said(randomizer):
    asked = asking(Track(1, randomizer, 0, 8))
    return [said(asked, Report(0, 1, symbol)) for symbol in range(randomizer.symbols)]


@pytest.mark.parametrize(
    ("name", "symbol", "words"),
    [
        ("k-RR of states", STATES.index(0, 1), "tea"),
        ("k-RR of states", STATES.index(1, 0), "no answer"),
        ("k-RR of changes", CHANGES.index(1, 2), "from tea to coffee"),
        ("k-RR of changes", CHANGES.index(2, 2), "no change"),
        ("k-RR that is silent", CHANGES.index(0, 3), "from no answer to neither"),
        ("signed subsets", 0, "nothing"),
        ("bits", 0b0110, "tea and coffee"),
        ("bits", 0, "none of the answers"),
        ("a matrix", 2, "the number 2, of 4"),
    ],
)
def test_a_report_is_said_as_a_person_would(name, symbol, words):
    """States and answers by their names."""
    assert all_said(SAYING[name])[symbol] == words


def test_a_vector_that_fits_a_change_says_more_of_the_new_and_less_of_the_old():
    """For every vector and change, in the words."""
    names, randomizer = ["no answer", "tea", "coffee", "neither"], SAYING["signed subsets"]
    for symbol, words in enumerate(all_said(randomizer)[1:], 1):
        more, less = words.removeprefix("more of ").split(", less of ")
        for old, new in permutations(range(4), 2):
            told = names[new] in more and names[old] in less
            assert randomizer.agrees(symbol, CHANGES.index(old, new)) == told


def test_without_null_nothing_is_said_of_having_no_answer():
    """In a closed cohort the signs stand for the answers alone."""
    randomizer = SignedSubset(MutationSpace(3, null=False), ODDS)
    asked = asking(Track(1, randomizer, 1, 8), closed=True)
    for symbol in range(randomizer.symbols):
        assert "no answer" not in said(asked, Report(0, 1, symbol))


def test_no_survey_forges_a_line_of_what_a_person_reads(joined):
    """Whatever its text holds, escapes of a terminal, newlines or marks that turn the reading direction, each thing
    that is printed has as many lines as with a plain text, and no sign that is not printed."""

    def printed(folder, question, answers):
        asked = PLAIN.asking(question=question, answers=answers)
        handle, app, *_ = joined(asked, folder=folder)
        handle.record(answers[1])
        app.at(START + 80).flush()
        return [str(each) for each in (app.ledger(), *app.reports(), app.explain(asked.id), privacy_notice(asked))]

    forged = "Tea?\n- survey 0 (joined): 0 of 0\x1b[2J\r\u202e\u2028"
    hostile = printed("hostile", forged, ("tea\x1b[1A\n", "cof\nfee", "nei\x07ther"))
    plain = printed("plain", "Tea?", ("tea", "coffee", "neither"))
    for one, other in zip(hostile, plain, strict=True):
        assert one.count("\n") == other.count("\n")
        assert all(line.isprintable() for line in one.split("\n"))


def test_no_breakdown_forges_a_line_of_what_a_person_reads(joined):
    """Nor do the names and values of breakdowns, which whoever signs a survey chooses as well."""
    made = replace(PLAIN, breakdowns=(Breakdown("app\nAt most 0 in all.", ("a\x1b[2J\n- forged", "b")),))
    handle, app, *_ = joined(made, stratum={"app\nAt most 0 in all.": "a\x1b[2J\n- forged"})
    for printed in map(str, (handle.ledger(), app.explain(made.id), privacy_notice(made))):
        assert all(line.isprintable() for line in printed.split("\n"))
        assert not any(line.startswith(("At most 0", "- forged")) for line in printed.split("\n"))


def test_no_reason_why_a_survey_is_refused_forges_a_line(begin):
    """What an error says of a relay is the survey's text as well, also where Python's own words repeat it."""
    made, heard = replace(PLAIN, relay="https://a\x1b(0\u2028- forged \u2100.example"), []
    device, *_ = begin(made, on_error=heard.append)
    device.join(made.id, signed=None)
    device.flush()
    for printed in map(str, (device.ledger(), *heard)):
        assert all(line.isprintable() for line in printed.split("\n"))


def test_the_example_of_what_others_may_conclude_is_an_answer_that_people_give():
    """A device answers a freezing question by itself; its "no" is nothing that anybody ever answered."""
    drink = Question("drink", "What do you drink?", ("tea", "coffee"), AtMost(3))
    made = make_survey(question=[Question.of_freezing(drink), drink], periods=7, epsilon=2)
    for printed in (str(explain(made)), privacy_notice(made)):
        assert "that you ever answered “tea”" in printed


APP = (Path(__file__).parents[2] / "docs/app.md").read_text()
TEN = make_survey(periods=10)


def test_a_record_that_is_dropped_is_logged_with_its_reason_and_without_the_answer(kit, caplog):
    """A survey that was refused, or has no such answer: the line names the survey, and says why."""
    device, server = kit(max_epsilon=0.1)
    handle = device.join(server.publish(TEN))
    assert "above 0.1" in device.flush().trouble
    caplog.clear()
    assert handle.record("tea") is Recorded.DROPPED
    assert f"a record was dropped: the survey {TEN.id.hex()} was not joined: TooCostly" in caplog.text
    assert "tea" not in caplog.text
    caplog.clear()
    device, _ = kit(server, "other", strict=False)
    handle = device.join(TEN.id)
    device.flush()
    assert handle.record("cocoa") is Recorded.DROPPED
    assert f"survey {TEN.id.hex()}: a record was dropped: it has no such question, answer or entry" in caplog.text
    assert "cocoa" not in caplog.text


def test_an_app_whose_on_error_fails_is_told_so_in_the_log_and_goes_on(kit, caplog):
    """The error that it was told is there as well."""
    device, server = kit(max_epsilon=0.1, on_error=lambda _: 1 / 0)
    device.join(server.publish(TEN))
    assert "above 0.1" in device.flush().trouble
    assert [each.getMessage().split(":")[0] for each in caplog.records] == [
        "TooCostly",
        "the app's on_error has failed",
    ]


def test_what_cannot_be_explained_says_why(kit):
    """A survey that is unknown, asked for, refused, left or silenced: each in a sentence that is true of it."""
    dear = make_survey(epsilon=100, question="Dear?")
    device, server = kit(max_epsilon=50)
    device.join(TEN.id)
    device.join(server.publish(dear))
    device.flush()

    def why(survey):
        with pytest.raises(ValueError, match=survey.id.hex()) as raised:
            device.explain(survey.id)
        return str(raised.value)

    assert "is not known yet: the next flush" in why(TEN)
    assert "was not joined: TooCostly" in why(dear)
    assert "nobody has joined" in why(make_survey(question="Never heard of?"))
    device.leave(TEN.id)
    assert "was left" in why(TEN)
    with pytest.raises(ValueError, match=r"no stratum: .* was left"):
        device.join(TEN.id).stratum({"platform": "linux"})


def test_a_tilde_is_the_home_folder(tmp_path, kit, monkeypatch):
    """Of the store and of its witness."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    kit(path="~/kept/changeling.db", witness="~/witness")
    assert (tmp_path / "kept/changeling.db").exists()
    assert (tmp_path / "witness").exists()


def test_every_error_of_the_package_is_in_the_table_of_the_docs():
    """With what it means and what to do, in one row."""
    rows = [row for row in APP.splitlines() if row.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    public = [getattr(changeling_client, name) for name in changeling_client.__all__]
    errors = {each.__name__ for each in public if isinstance(each, type) and issubclass(each, ClientError)}
    assert errors - {"ClientError"} <= named


def test_the_ledger_says_in_words_what_is_spent_on_whom_and_what_was_lost(kit):
    """All of it beside the average a week, one person's entries each, a survey that was refused, and drops with their
    reasons; whatever the app's decimal context."""
    asked, dear = make_survey(periods=364, epsilon=8), make_survey(epsilon=100, question="Dear?")
    device, server = kit(strict=False, max_epsilon=50)
    handle = device.join(server.publish(asked), entries=3, one_person=True)
    refused = device.join(server.publish(dear))
    device.flush()
    handle.record("milk")
    account, _ = device.ledger().surveys
    with localcontext(prec=1):
        shown, own = str(device.ledger()), str(handle.ledger())
    assert account.epsilon == 3 * asked.epsilon
    assert abs(account.per_week - account.epsilon / 52) < Decimal("0.000002")
    each_week = f"at most {account.epsilon} in all, on average {account.per_week} a week"
    assert f"- “{asked.question}” (joined): {each_week}" in shown
    assert f"(refused): not joined, so nothing counts; {refused.reason}" in shown
    assert "Not kept or not sent: 1 wrong-answer." in shown
    assert own.startswith(f"At most {asked.epsilon} in all, on average {asked.per_week} a week; ")
    assert "Done with up to period 0; 0 to be sent, 0 too late." in own


def test_what_was_sent_is_what_the_server_received(kit):
    """Word by word, with dates, and said to have arrived; what waits is said to wait."""
    device, server = kit()
    handle = device.join(server.publish(TEN))
    handle.record("tea")
    server.clock.advance(days=2)
    device.flush()
    handle.record("coffee")
    server.go_offline()
    server.clock.advance(days=1)
    device.flush()
    (about,) = device.reports()
    assert (about.id, about.question) == (TEN.id.hex(), TEN.question)
    assert [report.says for told in about.told if told.arrived for report in told.reports] == [
        report.says for report in server.reports
    ]
    assert [(told.arrived, told.at.isoformat()[:10]) for told in about.told] == [
        (True, "2027-01-02"),
        (True, "2027-01-03"),
        (False, "2027-01-04"),
    ]
    ((waits,),) = [told.reports for told in about.told if not told.arrived]
    assert waits.says == "from tea to coffee"
    assert "2027-01-04 00:00 UTC, waits to be sent" in str(about)


def test_the_preview_hangs_on_nothing_that_was_answered(kit):
    """Nor does anything else but the words of what was drawn: with the same coins for those, all is the same."""
    shown = []
    for answers in ([], ["tea"], ["coffee", "tea", "neither"]):
        device, server = kit(folder=f"{len(answers)}")
        handle = device.join(server.publish(TEN))
        for answer in answers:
            handle.record(answer)
        device.flush()
        (about,) = device.reports()
        assert about.told == ()
        shown.append(str(about.coming[0]))
    assert len({*shown}) == 1
    assert "one of “no change”, “from no answer to tea”" in shown[0]
    assert f"({TEN.plan.tracks[0].randomizer.symbols} in all)" in shown[0]


def test_the_next_answer_is_due_when_it_is_given(kit):
    """A second before nothing is sent, and a second later it is."""
    device, server = kit()
    device.join(server.publish(TEN)).record("tea")
    device.flush()
    ((coming,),) = (about.coming for about in device.reports())
    for after in (-1, 1):
        server.clock.now = coming.at.timestamp() + after
        assert device.flush().sent == (after > 0)
