"""What a survey can cost an entry beyond the pure epsilon. Pure: no clock, no HTTP, no database."""

from .curve import Corner, PrivacyCurve, curve_of, node_curve, randomizer_curve, worst_curve
from .joint import joint_curve
from .shuffled import ShuffledLoss, shuffled_loss
from .statement import Figure, LossStatement, loss_statement
from .transcript import delta_at, epsilon_at

__all__ = [
    "Corner",
    "Figure",
    "LossStatement",
    "PrivacyCurve",
    "ShuffledLoss",
    "curve_of",
    "delta_at",
    "epsilon_at",
    "joint_curve",
    "loss_statement",
    "node_curve",
    "randomizer_curve",
    "shuffled_loss",
    "worst_curve",
]
