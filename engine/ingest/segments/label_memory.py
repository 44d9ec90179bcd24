"""What is made of labels, remembered: one series pushes every few seconds, and its labels are the same each time."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache, wraps
from itertools import chain
from typing import Any, TypeVar, cast

SETS_MAX = 8_192
LENGTH_MAX = 1_024
"""Characters or bytes of a set that is remembered: what a hostile sender makes up must not fill the memory."""

Function = TypeVar("Function", bound=Callable[..., Any])


def remembered(make: Function) -> Function:
    """Let a function of labels, a tuple of tuples of texts, and of more that can be hashed, answer from memory.

    Its last ``SETS_MAX`` answers for short label sets are kept; errors are not.
    """
    known = lru_cache(SETS_MAX)(make)

    @wraps(make)
    def made(labels: tuple[tuple[Any, ...], ...], *more: Hashable) -> object:
        is_short = sum(map(len, chain.from_iterable(labels))) <= LENGTH_MAX
        return (known if is_short else make)(labels, *more)

    return cast(Function, made)
