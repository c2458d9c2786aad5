"""What can go wrong on the server's side.

    AggregatorError
    ├── StoreError         a store that is from the future, or another program's
    ├── Overtaken          another folder counted the same envelopes first; nothing of ours was kept
    ├── FoldDied           the process that folds has died; it is started again
    ├── FoldOver           what folds has died, and this process cannot start it again
    ├── Overloaded         more uploads wait for the disk, or more estimates for a thread, than we keep in memory
    ├── Unwritable         the store's file is gone, or its disk is full: nothing that is appended would be kept
    ├── SegmentLost        a segment that the catalogue names is not where it was written, or is damaged
    ├── TurnedDown         a request that the server answers with an error
    ├── SpoolError         a relay's folder that another process uses, or that is of another authority
    └── UpstreamTrouble    a relay's server did not do what the relay asked of it

A refused report is a member of the protocol's Refusal, not an exception. A bad argument is a ValueError with the
value in it.
"""

from collections.abc import Mapping

from changeling_protocol import ChangelingError
from changeling_protocol.wire import ErrorCode


class AggregatorError(ChangelingError):
    """Root of every error this package raises besides ValueError."""


class StoreError(AggregatorError):
    """A store that this version cannot use."""


class Overtaken(AggregatorError):
    """Another folder counted the same envelopes first; this one's work is discarded."""


class FoldDied(AggregatorError):
    """The process that folds has died; what it had not kept is folded again."""


class FoldOver(AggregatorError):
    """The process that folds has died, and this one cannot start it again; another process can fold what is left."""


class Overloaded(AggregatorError):
    """More waits than we keep in memory; the sender should come again."""


class Unwritable(AggregatorError):
    """The store could not keep what would be appended now; the sender should come again."""


class SegmentLost(AggregatorError):
    """A segment of the log is not where it was written, or is damaged: what is after it cannot be counted."""


class TurnedDown(AggregatorError):
    """A request that is answered with an error; an endpoint raises it.

    code, detail: what the answer says, to programs and to people. headers: more headers for the answer.
    """

    def __init__(self, code: ErrorCode, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.code, self.detail, self.headers = code, detail, headers


class SpoolError(AggregatorError):
    """A relay's folder that another process uses, or that is of another authority."""


class UpstreamTrouble(AggregatorError):
    """A relay's server did not do what the relay asked of it; its words hold a status or the name of an error.

    status: what it answered, or None. silence: for how many seconds it asked to be left alone, 0 if it did not.
    """

    def __init__(self, sentence: str, status: int | None = None, silence: int = 0) -> None:
        super().__init__(sentence)
        self.status, self.silence = status, silence
