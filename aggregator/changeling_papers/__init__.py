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
    PanPrivateMemory,
    binary_mechanism,
    cum,
    levels_after,
    overwrite,
    read_over,
)
from .dynamic import (
    BASEL,
    Born,
    DeletingNode,
    FullyDynamic,
    IntervalTree,
    Protects,
    Segment,
    TreeState,
    Update,
    error_bound,
    fully_dynamic,
    least_variance,
    left_ancestor,
    left_path,
    level_of,
)
from .grouped import Cluster, Grouped, OnlineCounting, clustered, grouped
from .offers import register
from .partitioning import (
    PartitionedRelease,
    Partitioning,
    PartitionState,
    SparseVector,
    SparseVectorState,
    insertion_minus_deletion,
    sparse_release,
)
from .queries import Algebra, Atoms, Domain, Query, Table
from .regions import (
    FiniteMechanism,
    Law,
    PrivacyRegion,
    cw_region,
    draw_regions,
    region_of,
    region_of_laws,
    region_of_randomizer,
    save_region_plot,
)
from .sigma import Answer, Assumed, Benchmark, Evolving, SigmaCounting, under_replacement
from .state_diagram import StateDiagram, state_diagram
from .static import BasicCounting, LinearQueries, Metered, MultiplicativeWeights, Odometer, PricedWeights
from .streaming import StreamBound, StreamingMechanism, stream_bound

__all__ = [
    "BASEL",
    "Algebra",
    "Answer",
    "Assumed",
    "Atoms",
    "BasicCounting",
    "Benchmark",
    "BinaryMechanism",
    "Born",
    "Cluster",
    "DeletingNode",
    "Domain",
    "Evolving",
    "FiniteMechanism",
    "FullyDynamic",
    "Grouped",
    "InfiniteMechanism",
    "IntervalTree",
    "Law",
    "LinearQueries",
    "Metered",
    "MultiplicativeWeights",
    "Odometer",
    "OnlineCounting",
    "PanPrivateCounter",
    "PanPrivateMemory",
    "PartitionState",
    "PartitionedRelease",
    "Partitioning",
    "PricedWeights",
    "PrivacyRegion",
    "Protects",
    "Query",
    "Segment",
    "SigmaCounting",
    "SparseVector",
    "SparseVectorState",
    "StateDiagram",
    "StreamBound",
    "StreamingMechanism",
    "Table",
    "TreeState",
    "Update",
    "binary_mechanism",
    "clustered",
    "cum",
    "cw_region",
    "draw_regions",
    "error_bound",
    "fully_dynamic",
    "grouped",
    "insertion_minus_deletion",
    "least_variance",
    "left_ancestor",
    "left_path",
    "level_of",
    "levels_after",
    "overwrite",
    "read_over",
    "region_of",
    "region_of_laws",
    "region_of_randomizer",
    "register",
    "save_region_plot",
    "sparse_release",
    "state_diagram",
    "stream_bound",
    "under_replacement",
]
