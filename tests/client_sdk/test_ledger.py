"""What the ledger says in words: each survey as it stands, what was dropped, and no average that reads as a bound."""

from decimal import Decimal, localcontext

import pytest
from changeling_client import Ledger, Status, SurveyAccount
from changeling_client.testing import FakeServer, make_client, make_survey

from .device import PLAIN, Clock, client
from .device import FakeServer as ContractServer

YEAR = make_survey(periods=364, epsilon=8)


def test_what_a_week_costs_is_said_to_be_an_average(tmp_path):
    """Beside the whole, which is what the survey promises; whatever the app's decimal context."""
    server = FakeServer()
    with make_client(tmp_path, server) as device:
        handle = device.join(server.publish(YEAR))
        device.flush()
        with localcontext(prec=1):
            (line,) = (line for line in str(device.ledger()).splitlines() if line.startswith("- "))
            own = str(handle.ledger())
    weekly = YEAR.per_week
    assert line == f"- “{YEAR.question}” (joined): at most {YEAR.epsilon} in all, on average {weekly} a week"
    assert own.startswith(f"At most {YEAR.epsilon} in all, on average {weekly} a week; ")
    assert "Done with up to period 0; 0 to be sent, 0 too late." in own


def test_the_average_of_one_persons_entries_is_of_what_they_count(tmp_path):
    """Three entries count three times, in all and on average."""
    server = FakeServer()
    with make_client(tmp_path, server) as device:
        device.join(server.publish(YEAR), entries=3, one_person=True)
        device.flush()
        (account,) = device.ledger().surveys
        shown = device.ledger()._repr_html_()
    assert f"at most {account.epsilon} in all" in shown
    assert YEAR.question in shown
    assert account.epsilon == 3 * YEAR.epsilon
    assert abs(account.per_week - account.epsilon / 52) < Decimal("0.000002")


def test_a_survey_that_is_not_joined_says_how_it_stands(tmp_path):
    """One that was asked for and not heard of, and one that was refused, with the reason."""
    server = ContractServer()
    with client(tmp_path, server, Clock(), max_epsilon=0.1) as device:
        device.join(PLAIN.id, signed=None)
        assert str(device.ledger().surveys[0]).endswith("(asked): not known yet, so nothing is sent and nothing counts")
        device.leave(PLAIN.id)
    server = ContractServer(PLAIN)
    with client(tmp_path / "other", server, Clock(), max_epsilon=0.1) as device:
        handle = device.join(PLAIN.id, signed=None)
        device.flush()
        (account,) = device.ledger().surveys
        assert account.reason == handle.reason
        assert str(account).endswith(f"(refused): not joined, so nothing counts; {handle.reason}")


def test_what_counts_nothing_is_said_to():
    """As in development, where an average over a few minutes would be a large number that means nothing."""
    short = SurveyAccount("00" * 16, "Tea?", Status.JOINED, Decimal(0), Decimal(0))
    assert str(short) == "“Tea?” (joined): counts nothing"
    day = Ledger(Decimal(4), Decimal(28), Decimal(8), 3, 0, 0, {"platform": "<linux>"})
    assert "platform &lt;linux&gt;" in day._repr_html_()
    day = Ledger(Decimal(4), Decimal(28), Decimal(8), 3, 0, 0, {"platform": "linux"})
    assert str(day).splitlines() == [
        "At most 4 in all; 8 in all if a backup is put back once and nothing notices.",
        "Done with up to period 3; 0 to be sent, 0 too late.",
        "Told as it is: platform linux.",
    ]


def test_drops_are_printed_with_their_reasons(tmp_path):
    """So nobody has to know of the attribute to see that something is wrong."""
    server = FakeServer()
    with make_client(tmp_path, server, strict=False) as device:
        handle = device.join(server.publish(YEAR))
        device.flush()
        assert "Not kept" not in str(device.ledger())
        handle.record("milk")
        assert "Not kept or not sent: 1 wrong-answer." in str(device.ledger())


@pytest.mark.parametrize("status", Status)
def test_a_status_prints_as_a_word(status):
    """And not as the number by which the store keeps it."""
    assert str(status) == f"{status}" == status.name.lower()
