"""Quickly built values are what ``dataclasses`` would have made, and as frozen."""

from __future__ import annotations

import copy
import inspect
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from typing import Generic, TypeVar

import pytest

from engine.core.fast_dataclasses import fast_constructor, fast_init


@fast_init
@dataclass(frozen=True, slots=True)
class Point:
    """Both kinds of arguments, a default, a factory, and a field that follows from others."""

    x: int
    y: int = 2
    tags: list[str] = field(default_factory=list, kw_only=True)
    length: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "length", abs(self.x) + abs(self.y))


def test_arguments_defaults_and_factories_are_those_of_the_fields() -> None:
    assert [getattr(Point(1), each.name) for each in fields(Point)] == [1, 2, [], 3]
    assert Point(1, 5, tags=["a"]) == Point(x=1, y=5, tags=["a"]) != Point(1, 5)
    assert Point(1).tags is not Point(1).tags
    assert list(inspect.signature(Point).parameters) == ["x", "y", "tags"]


@pytest.mark.parametrize(
    ("arguments", "named"), [((), {}), ((1, 2, ["a"]), {}), ((1,), {"z": 1}), ((1,), {"length": 1})]
)
def test_arguments_that_no_field_has_are_refused(arguments: tuple[object, ...], named: dict[str, object]) -> None:
    with pytest.raises(TypeError):
        Point(*arguments, **named)  # type: ignore[arg-type]


def test_a_value_cannot_be_changed_once_it_is_built() -> None:
    point = Point(1)
    assert type(point) is Point
    with pytest.raises(FrozenInstanceError):
        point.x = 2  # type: ignore[misc]


def test_values_are_copied_replaced_and_pickled_as_others() -> None:
    point = Point(3, tags=["a"])
    assert replace(point, y=4) == Point(3, 4, tags=["a"])
    assert copy.copy(point) == copy.deepcopy(point) == pickle.loads(pickle.dumps(point)) == point


Thing = TypeVar("Thing")


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Box(Generic[Thing]):
    """A generic value."""

    thing: Thing


def test_generic_values_are_built_too() -> None:
    assert Box(thing=1) == Box(thing=1) != Box(thing=2)
    with pytest.raises(FrozenInstanceError):
        Box(thing=1).thing = 2  # type: ignore[misc]


def test_a_maker_makes_what_the_class_makes() -> None:
    point = fast_constructor(Point)(1, 5, tags=["a"])
    assert (point, type(point), hash_of(fast_constructor(Box)(thing=1))) == (
        Point(1, 5, tags=["a"]),
        Point,
        hash_of(Box(thing=1)),
    )
    assert fast_constructor(Point)(1) == Point(1)
    assert fast_constructor(Point)(1).tags is not fast_constructor(Point)(1).tags
    with pytest.raises(FrozenInstanceError):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(TypeError):
        fast_constructor(Point)(1, z=1)  # type: ignore[call-arg]


def hash_of(box: Box[int]) -> int:
    return hash(box)
