"""What NumPyro wraps a distribution in without changing what it says of one number."""

from collections.abc import Iterator

from numpyro.distributions import (
    Distribution,
    ExpandedDistribution,
    Independent,
    MaskedDistribution,
)

__all__ = ["unwrapped", "wrapped"]


def wrapped(fn: Distribution) -> Iterator[Distribution]:
    """A distribution, and those that it expands, calls independent or masks, from the outside in."""
    yield fn
    while isinstance(fn, ExpandedDistribution | Independent | MaskedDistribution):
        fn = fn.base_dist
        yield fn


def unwrapped(fn: Distribution) -> Distribution:
    """The innermost of them: the distribution before plates and ``expand`` repeated it."""
    *_, innermost = wrapped(fn)
    return innermost
