"""Trees of noise drawn ahead: levels at a pure epsilon, for streams that do not react to what was published."""

from .shape import Shape
from .tree import AheadTree, drawn_ahead

__all__ = ["AheadTree", "Shape", "drawn_ahead"]
