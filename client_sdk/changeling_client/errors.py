"""What can go wrong on the device.

    ClientError
    ├── StoreUnusable       the store is damaged, foreign, or from a later version: stay silent
    ├── StoreBusy           another process held the store for too long: try again
    ├── ServerTrouble       the server could not be asked, or its answer not be used: try again
    └── CannotJoin          the survey may not be joined from this store
        ├── WrongSurvey     the bytes are not of the survey that was named
        ├── TooCostly       with it the store would exceed max_epsilon
        └── EnrolmentOver   its calendar has ended, or its cohort is closed

A survey with a bad signature, or one that costs more than it states, raises the protocol's BadSignature,
MalformedBytes or UnderstatedEpsilon. A bad argument is a plain ValueError. No error holds an answer or a key.
"""


class ClientError(Exception):
    """Root of every error this package raises besides ValueError and the protocol's own."""


class StoreUnusable(ClientError):
    """The store cannot be trusted; what it spent is unknown, so there is no fresh start in its place."""


class StoreBusy(ClientError):
    """Another process held the store for longer than we wait; nothing was changed."""


class ServerTrouble(ClientError):
    """The server could not be asked, or gave no usable answer. `flush` returns it as text instead."""


class CannotJoin(ClientError):
    """A survey that may not be joined from this store."""


class WrongSurvey(CannotJoin):
    """Signed bytes of another survey than the one that was named."""


class TooCostly(CannotJoin):
    """The stated epsilons of this store's surveys would add up to more than max_epsilon."""


class EnrolmentOver(CannotJoin):
    """The survey's calendar has ended, or the first period of a closed cohort has closed."""
