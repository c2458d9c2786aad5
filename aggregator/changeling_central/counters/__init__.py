"""Counters of a stream: the binary mechanism, streams without an end, pan-privacy, partitioning, sparse release."""

from .binary import BinaryMechanism, binary_mechanism, cum
from .infinite import InfiniteMechanism
from .overwritten import overwrite, read_over
from .pan_private import PanPrivateCounter
from .partitioning import Partitioning
from .sparse_release import SparseRelease, sparse_release
from .sparse_vector import SparseVector

__all__ = [
    "BinaryMechanism",
    "InfiniteMechanism",
    "PanPrivateCounter",
    "Partitioning",
    "SparseRelease",
    "SparseVector",
    "binary_mechanism",
    "cum",
    "overwrite",
    "read_over",
    "sparse_release",
]
