"""Numbers in no order that a model has: the same at every call, and nothing that a program has to draw."""

from functools import lru_cache

import numpy as np


@lru_cache
def irregular_signs(seed: int, size: int) -> np.ndarray:
    """Numbers of 1 and -1, shape (size,)."""
    return np.random.default_rng(seed).choice([-1.0, 1.0], size)


@lru_cache
def irregular_numbers(seed: int, size: int) -> np.ndarray:
    """Numbers between 1/2 and 1, shape (size,)."""
    return np.random.default_rng(seed).uniform(0.5, 1, size)
