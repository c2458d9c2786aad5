"""Matrix mechanisms: levels of a query with correlated Gaussian noise, for a delta above 0 or concentrated privacy."""

from .square_root import SquareRoot, square_root, square_root_concentrated

__all__ = ["SquareRoot", "square_root", "square_root_concentrated"]
