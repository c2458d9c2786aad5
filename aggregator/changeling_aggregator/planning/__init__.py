"""Release plans for a population and a budget: pure functions."""

from .paper import hierarchical_plan

__all__ = ["hierarchical_plan"]
