"""What the devices and the server of a survey must agree on; decides nothing about storage or transport."""

from .calendar import LAST_INSTANT, MOST_PERIODS, Calendar, Node, cadence, cover
from .canonical import encode
from .coins import Coins, SystemCoins
from .constraints import MOST_MUTATIONS, AtMost, AtMostWithin, Constraint, Hybrid, TimeBounded, most_span
from .cost import group_cost, lives_cost, most_telling, node_cost, plan_cost, track_cost
from .ending import EarlyEnd
from .errors import BadSignature, CannotOpen, ChangelingError, MalformedBytes, ProtocolError, UnderstatedEpsilon
from .expectation import MICRO, ExpectedChanges
from .joint import MOST_SCORE, Joint, Kernel, agreeing
from .loopback import is_loopback
from .millionths import from_micro, micro, per_week
from .plan import Group, ReleasePlan, Track, draw_nodes
from .quantities import EntryNumber, NodeNumber, StratumNumber, SurveyId, TrackNumber, UnixMilliseconds, UnixSeconds
from .randomizers import (
    BALANCED,
    SYMBOL_LIMIT,
    Agreeing,
    CustomResponse,
    KaryChange,
    KaryResponse,
    Losses,
    MutationSpace,
    Odds,
    Randomizer,
    SignedSubset,
    SignVectors,
    Space,
    StateSpace,
    SubsetSelection,
    UnaryEncoding,
    log_ratio,
    rounded_up,
    symbol_bytes,
)
from .randomizers.odds import MOST_EPSILON
from .randomizers.sign_vectors import arrangements
from .randomizers.spaces import check_answers
from .randomizers.unary_encoding import MOST_BITS
from .refusal import Refusal, RefusalCounts
from .responding import Slots, respond
from .sealing import HEAD_BYTES, SEAL_BYTES, EnvelopeHead, SealingKey, head_of, key_id, open_envelope, seal
from .signing import KEY_BYTES, authority_key
from .strata import Breakdown, count_strata, stratum_of, told_by
from .survey import ID_BYTES, Survey
from .upload import (
    CLOSING_BYTES,
    CLOSING_ID_BYTES,
    MOST_SPANNED_PERIODS,
    STANDING_BYTES,
    Closing,
    Report,
    Standing,
    UploadColumns,
    closings,
    column_bytes,
    decode_upload,
    draw_closing_id,
    encode_upload,
    upload_bytes,
)
from .upwards import upwards
from .version import VERSION

__version__ = "0.1.0"

__all__ = [
    "BALANCED",
    "CLOSING_BYTES",
    "CLOSING_ID_BYTES",
    "HEAD_BYTES",
    "ID_BYTES",
    "KEY_BYTES",
    "LAST_INSTANT",
    "MICRO",
    "MOST_BITS",
    "MOST_EPSILON",
    "MOST_MUTATIONS",
    "MOST_PERIODS",
    "MOST_SCORE",
    "MOST_SPANNED_PERIODS",
    "SEAL_BYTES",
    "STANDING_BYTES",
    "SYMBOL_LIMIT",
    "VERSION",
    "Agreeing",
    "AtMost",
    "AtMostWithin",
    "BadSignature",
    "Breakdown",
    "Calendar",
    "CannotOpen",
    "ChangelingError",
    "Closing",
    "Coins",
    "Constraint",
    "CustomResponse",
    "EarlyEnd",
    "EntryNumber",
    "EnvelopeHead",
    "ExpectedChanges",
    "Group",
    "Hybrid",
    "Joint",
    "KaryChange",
    "KaryResponse",
    "Kernel",
    "Losses",
    "MalformedBytes",
    "MutationSpace",
    "Node",
    "NodeNumber",
    "Odds",
    "ProtocolError",
    "Randomizer",
    "Refusal",
    "RefusalCounts",
    "ReleasePlan",
    "Report",
    "SealingKey",
    "SignVectors",
    "SignedSubset",
    "Slots",
    "Space",
    "Standing",
    "StateSpace",
    "StratumNumber",
    "SubsetSelection",
    "Survey",
    "SurveyId",
    "SystemCoins",
    "TimeBounded",
    "Track",
    "TrackNumber",
    "UnaryEncoding",
    "UnderstatedEpsilon",
    "UnixMilliseconds",
    "UnixSeconds",
    "UploadColumns",
    "agreeing",
    "arrangements",
    "authority_key",
    "cadence",
    "check_answers",
    "closings",
    "column_bytes",
    "count_strata",
    "cover",
    "decode_upload",
    "draw_closing_id",
    "draw_nodes",
    "encode",
    "encode_upload",
    "from_micro",
    "group_cost",
    "head_of",
    "is_loopback",
    "key_id",
    "lives_cost",
    "log_ratio",
    "micro",
    "most_span",
    "most_telling",
    "node_cost",
    "open_envelope",
    "per_week",
    "plan_cost",
    "respond",
    "rounded_up",
    "seal",
    "stratum_of",
    "symbol_bytes",
    "told_by",
    "track_cost",
    "upload_bytes",
    "upwards",
]
