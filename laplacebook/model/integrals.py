"""Whether a run of a model is to add the integrals over what was marginalised: a search, each of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_WANTED = ContextVar("integrals wanted", default=True)


@contextmanager
def with_integrals(wanted: bool) -> Iterator[None]:
    """Where they are wanted, or not: as where only the values of sites are asked for, and no log density."""
    token = _WANTED.set(wanted)
    try:
        yield
    finally:
        _WANTED.reset(token)


def integrals_are_wanted() -> bool:
    """Whether a marginal model is to add its integral; else zero stands in its place."""
    return _WANTED.get()
