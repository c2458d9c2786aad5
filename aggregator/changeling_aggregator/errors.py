"""What can go wrong on the server's side.

    AggregatorError
    ├── StoreError         a store that is from the future, or another program's
    ├── Overtaken          another folder counted the same envelopes first; nothing of ours was kept
    ├── FoldDied           the process that folds has died; it is started again
    ├── Overloaded         more uploads wait for the disk, or more estimates for a thread, than we keep in memory
    ├── Unwritable         the store's file is gone, or its disk is full: nothing that is appended would be kept
    ├── TurnedDown         a request that the server answers with an error
    └── ServerAnswered     what an operator's command raises when a server answered it with an error

A refused report is a member of the protocol's Refusal, not an exception. A bad argument is a ValueError with the
value in it.
"""

from collections.abc import Mapping

from changeling_protocol.errors import ChangelingError
from changeling_protocol.wire import ErrorCode


class AggregatorError(ChangelingError):
    """Root of every error this package raises besides ValueError."""


class StoreError(AggregatorError):
    """A store that this version cannot use."""


class Overtaken(AggregatorError):
    """Another folder counted the same envelopes first; this one's work is discarded."""


class FoldDied(AggregatorError):
    """The process that folds has died; what it had not kept is folded again."""


class Overloaded(AggregatorError):
    """More waits than we keep in memory; the sender should come again."""


class Unwritable(AggregatorError):
    """What is appended to the store now would be lost; the sender should come again."""


class TurnedDown(AggregatorError):
    """A request that is answered with an error; an endpoint raises it.

    code, detail: what the answer says, to programs and to people. headers: more headers for the answer.
    """

    def __init__(self, code: ErrorCode, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.code, self.detail, self.headers = code, detail, headers


class ServerAnswered(AggregatorError):
    """A server answered an operator's request with an error.

    code: why, or None where what answered is no server of ours.
    """

    def __init__(self, status: int, code: ErrorCode | None, detail: str) -> None:
        super().__init__(f"the server answered {status}: {detail}")
        self.code = code
