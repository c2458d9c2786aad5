"""Privacy regions of finite mechanisms, of mechanisms over random databases (CW), and streaming composition."""

from .distributional import cw_region
from .finite import FiniteMechanism
from .plot import save_region_plot
from .region import PrivacyRegion, TangentLine, pair_region, region_of, region_of_laws, region_of_randomizer
from .stream_bound import StreamBound, stream_bound
from .streaming import StreamingMechanism

__all__ = [
    "FiniteMechanism",
    "PrivacyRegion",
    "StreamBound",
    "StreamingMechanism",
    "TangentLine",
    "cw_region",
    "pair_region",
    "region_of",
    "region_of_laws",
    "region_of_randomizer",
    "save_region_plot",
    "stream_bound",
]
