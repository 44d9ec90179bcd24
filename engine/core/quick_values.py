"""Frozen dataclasses that are built quickly: what decisions rest on must not change, and is made anew for every poll.

The constructor that ``dataclasses`` writes for a frozen class sets each field by a call that goes around the class's
own refusal; for a dozen fields that takes longer than most decisions. This one sets them while the object is of a twin
class, which has the same slots and can be changed, and then makes it what it is: half the time, and as frozen.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from types import new_class
from typing import Any, ParamSpec, TypeVar

Value = TypeVar("Value")
Parameters = ParamSpec("Parameters")


def quickly_built(cls: type[Value]) -> type[Value]:
    """Give a dataclass with ``frozen=True, slots=True`` a quick constructor of the same signature.

    It may be generic, but has no other base class.
    """
    constructor = _function(cls, "self, ", "turn_into(self, '__class__', twin)", "")
    constructor.__annotations__ = dict(cls.__init__.__annotations__)
    constructor.__qualname__ = f"{cls.__qualname__}.__init__"
    cls.__init__ = constructor  # type: ignore[method-assign]
    return cls


def maker(cls: Callable[Parameters, Value]) -> Callable[Parameters, Value]:
    """Return a function that does what calling a ``quickly_built`` class does, in half the time again: a class puts
    the arguments into a dictionary before its constructor sees them."""
    made: Callable[Parameters, Value] = _function(cls, "", "self = new(twin)", "return self")
    return made


def _function(cls: Any, first: str, begin: str, end: str) -> Any:
    """Return a function that takes the fields and sets them, between the lines ``begin`` and ``end``."""
    every: tuple[Field[Any], ...] = fields(cls)
    given = sorted((field for field in every if field.init), key=lambda field: field.kw_only is True)
    names: dict[str, Any] = {"cls": cls, "twin": _twin(cls), "turn_into": object.__setattr__, "MISSING": MISSING}
    names["new"] = object.__new__
    arguments: list[str] = []
    lines = [begin]
    for field in given:
        if field.kw_only and "*" not in arguments:
            arguments.append("*")
        arguments.append(field.name + _default(field, names))
        made = f"make_{field.name}() if {field.name} is MISSING else " if field.default_factory is not MISSING else ""
        lines.append(f"self.{field.name} = {made}{field.name}")
    lines.append("self.__class__ = cls")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    body = "\n  ".join([*lines, end] if end else lines)
    scope: dict[str, Any] = {}
    source = (
        f"def build({', '.join(names)}):\n def __init__({first}{', '.join(arguments)}):\n  {body}\n return __init__"
    )
    exec(source, scope)  # noqa: S102 (the words are names of fields, as in dataclasses itself)
    return scope["build"](**names)


@functools.cache
def _twin(cls: Any) -> type:
    """Return the class of objects in the making."""
    bases = cls.__dict__.get("__orig_bases__", ())
    slots = {"__slots__": tuple(field.name for field in fields(cls))}
    return new_class(f"{cls.__name__}InTheMaking", bases, exec_body=lambda scope: scope.update(slots))


def _default(field: Field[Any], names: dict[str, Any]) -> str:
    """Return a field's default as it stands in the list of arguments, and put what it needs among the names."""
    if field.default_factory is not MISSING:
        names[f"make_{field.name}"] = field.default_factory
        return "=MISSING"
    if field.default is not MISSING:
        names[f"default_{field.name}"] = field.default
        return f"=default_{field.name}"
    return ""
