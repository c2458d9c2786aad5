"""Other local methods for answers that change, beside ours, as `changeling-sim compare` has them.

On the wish of docs/mathematics.md, "Planning": 20,000 entries, 4 answers, 64 periods, up to 3 changes, a total epsilon
of 8 for each, by its own authors' accounting.
"""

from math import isfinite

from changeling_simulations import compare_methods

from .plans import cohort_wish

EPSILON = 8


def measure() -> dict[str, float]:
    """Per method: the error of a share, what a change halfway can really cost, and the share of changers exposed.

    A loss without bound is left out.
    """
    figures: dict[str, float] = {}
    for method in compare_methods(cohort_wish(EPSILON)).methods:
        name = "_".join("".join(letter if letter.isalnum() else " " for letter in method.name).split())
        figures[f"{name}_rms_error"] = method.error
        figures[f"{name}_beyond"] = method.exposed
        if isfinite(method.really):
            figures[f"{name}_loss"] = method.really
    return figures
