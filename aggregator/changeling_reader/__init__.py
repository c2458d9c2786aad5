"""What a server shows of its surveys, as arrays and data frames, for notebooks and scripts.

from changeling_reader import Reader

with Reader("https://surveys.example.org") as reader:
    series = reader.series("0a1b…", method="retrospective")
    series.frame()
    series.plot()
"""

from .errors import ReaderError
from .estimates import Estimates
from .reader import Reader

__all__ = ["Estimates", "Reader", "ReaderError"]
