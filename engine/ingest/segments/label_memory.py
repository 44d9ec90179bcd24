"""Cache values derived from labels: a series pushes every few seconds with equal labels."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache, wraps
from itertools import chain
from typing import Any, TypeVar, cast

SETS_MAX = 8_192
LENGTH_MAX = 1_024
"""Maximum characters or bytes of a cached label set, so that untrusted input cannot exhaust memory."""

Function = TypeVar("Function", bound=Callable[..., Any])


def remembered(make: Function) -> Function:
    """Return a cached version of a function of labels (a tuple of tuples of strings) and further hashable arguments.

    The last ``SETS_MAX`` results for short label sets are cached; errors are not.
    """
    known = lru_cache(SETS_MAX)(make)

    @wraps(make)
    def made(labels: tuple[tuple[Any, ...], ...], *more: Hashable) -> object:
        is_short = sum(map(len, chain.from_iterable(labels))) <= LENGTH_MAX
        return (known if is_short else make)(labels, *more)

    return cast(Function, made)
