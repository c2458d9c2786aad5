"""What the demo prints of its clients."""

from changeling_client.testing import FakeServer, make_client, make_survey
from rich.console import Console

from demo.report import ledger_table


def test_clients_with_equal_ledgers_share_a_row(tmp_path):
    """Two whose answers have arrived, and one whose answer waits."""
    server, asked = FakeServer(), make_survey(periods=10, epsilon=3)
    server.publish(asked)
    clients = [make_client(tmp_path / name, server) for name in "abc"]
    handles = [client.join(asked.id, signed=server.signed(asked)) for client in clients]
    server.clock.advance(days=1)
    for client in clients:
        if client is clients[-1]:
            server.go_offline()
        client.flush()
    console = Console(width=110)
    with console.capture() as printed:
        console.print(ledger_table(handles))
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in printed.get().splitlines() if "│" in line]
    assert [(row[0], *row[2:]) for row in rows] == [("2", "1", "0", "0"), ("1", "1", "1", "0")]
