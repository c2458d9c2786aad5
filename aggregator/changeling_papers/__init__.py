"""The papers' other systems, each as small as it can be said: for study, comparison and tests.

    cum(1024, Fraction(1)), InfiniteMechanism(BasicCounting(), Fraction(1))    counters of a stream
    fully_dynamic(LinearQueries(table), Fraction(1))                           linear queries of data that come and go
    SigmaCounting(Algebra.of(queries), Fraction(1))                            many counts of one table, in order
    region_of(FiniteMechanism.of(rows))                                        the privacy region of a finite mechanism

Each is a `changeling_central.Mechanism` and keeps its contract. `register` offers some of them to `changeling release`,
which finds it by its entry point where the extra `papers` is installed.
"""

from .counters import (
    BinaryMechanism,
    InfiniteMechanism,
    PanPrivateCounter,
    binary_mechanism,
    cum,
    overwrite,
    read_over,
    unbeatable,
)
from .dynamic import Born, FullyDynamic, IntervalTree, Protects, StreamSegment, Update, fully_dynamic
from .hierarchy import (
    BestEstimates,
    HierarchyRelease,
    StateDiagram,
    best_hierarchy,
    cover_sum,
    hierarchy,
    layer_bounds,
    retrospective,
    state_diagram,
)
from .offers import register
from .partitioning import PartitionedRelease, Partitioning, SparseVector, insertion_minus_deletion, sparse_release
from .queries import Algebra, Atoms, Domain, Query, Table
from .regions import (
    FiniteMechanism,
    Law,
    PrivacyRegion,
    StreamBound,
    StreamingMechanism,
    cw_region,
    region_of,
    region_of_laws,
    save_region_plot,
    stream_bound,
)
from .sigma import (
    Assumed,
    Benchmark,
    Evolving,
    Grouped,
    NoisyCount,
    OnlineCounting,
    SigmaCounting,
    clustered,
    grouped,
)
from .static import BasicCounting, LinearQueries, Metered, MultiplicativeWeights, Odometer

__all__ = [
    "Algebra",
    "Assumed",
    "Atoms",
    "BasicCounting",
    "Benchmark",
    "BestEstimates",
    "BinaryMechanism",
    "Born",
    "Domain",
    "Evolving",
    "FiniteMechanism",
    "FullyDynamic",
    "Grouped",
    "HierarchyRelease",
    "InfiniteMechanism",
    "IntervalTree",
    "Law",
    "LinearQueries",
    "Metered",
    "MultiplicativeWeights",
    "NoisyCount",
    "Odometer",
    "OnlineCounting",
    "PanPrivateCounter",
    "PartitionedRelease",
    "Partitioning",
    "PrivacyRegion",
    "Protects",
    "Query",
    "SigmaCounting",
    "SparseVector",
    "StateDiagram",
    "StreamBound",
    "StreamSegment",
    "StreamingMechanism",
    "Table",
    "Update",
    "best_hierarchy",
    "binary_mechanism",
    "clustered",
    "cover_sum",
    "cum",
    "cw_region",
    "fully_dynamic",
    "grouped",
    "hierarchy",
    "insertion_minus_deletion",
    "layer_bounds",
    "overwrite",
    "read_over",
    "region_of",
    "region_of_laws",
    "register",
    "retrospective",
    "save_region_plot",
    "sparse_release",
    "state_diagram",
    "stream_bound",
    "unbeatable",
]
