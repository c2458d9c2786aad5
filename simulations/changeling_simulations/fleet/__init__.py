"""Load for a server that is the user's own: sealed envelopes of made-up devices, and what they must come to.

`devices` makes a block of devices and their envelopes, `truth` adds up what is expected and compares it with what a
server shows. `sending` makes all envelopes before the first is sent, in processes of their own, and sends them.
"""

from .devices import Wishes, make_block, open_periods, overdue_periods
from .sending import Load, SendingFailed, Sent, sealed, send
from .truth import Truth, TruthRow, compared, told

__all__ = [
    "Load",
    "SendingFailed",
    "Sent",
    "Truth",
    "TruthRow",
    "Wishes",
    "compared",
    "make_block",
    "open_periods",
    "overdue_periods",
    "sealed",
    "send",
    "told",
]
