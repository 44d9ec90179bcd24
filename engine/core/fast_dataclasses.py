"""Faster constructors for frozen dataclasses, for values that are built in large numbers on every poll.

The constructor that ``dataclasses`` generates for a frozen class calls ``object.__setattr__`` once per field. The
constructor made here assigns the fields while the object is an instance of a mutable class with the same slots, then
sets ``__class__`` to the frozen class. This takes half the time, and the result is as immutable.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from types import new_class
from typing import Any, ParamSpec, TypeVar

Value = TypeVar("Value")
Parameters = ParamSpec("Parameters")


def fast_init(cls: type[Value]) -> type[Value]:
    """Replace the constructor of a dataclass with ``frozen=True, slots=True`` by a faster one of the same signature.

    The class may be generic, but has no other base class.
    """
    constructor = _function(cls, "self, ", "set_attribute(self, '__class__', mutable)", "")
    constructor.__annotations__ = dict(cls.__init__.__annotations__)
    constructor.__qualname__ = f"{cls.__qualname__}.__init__"
    cls.__init__ = constructor  # type: ignore[method-assign]
    return cls


def fast_constructor(cls: Callable[Parameters, Value]) -> Callable[Parameters, Value]:
    """Return a function that is equivalent to calling a ``fast_init`` class and takes half as long.

    Calling a class packs the arguments into a dictionary before ``__init__`` runs; a plain function does not.
    """
    function: Callable[Parameters, Value] = _function(cls, "", "self = new(mutable)", "return self")
    return function


def _function(cls: Any, first: str, begin: str, end: str) -> Any:
    """Return a generated function that assigns its arguments to the fields, between the lines ``begin`` and ``end``."""
    all_fields: tuple[Field[Any], ...] = fields(cls)
    init_fields = sorted((field for field in all_fields if field.init), key=lambda field: field.kw_only is True)
    names: dict[str, Any] = {
        "cls": cls,
        "mutable": _mutable_class(cls),
        "new": object.__new__,
        "set_attribute": object.__setattr__,
        "MISSING": MISSING,
    }
    parameters: list[str] = []
    lines = [begin]
    for field in init_fields:
        if field.kw_only and "*" not in parameters:
            parameters.append("*")
        parameters.append(field.name + _default(field, names))
        made = f"make_{field.name}() if {field.name} is MISSING else " if field.default_factory is not MISSING else ""
        lines.append(f"self.{field.name} = {made}{field.name}")
    lines.append("self.__class__ = cls")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    body = "\n  ".join([*lines, end] if end else lines)
    scope: dict[str, Any] = {}
    source = (
        f"def build({', '.join(names)}):\n def __init__({first}{', '.join(parameters)}):\n  {body}\n return __init__"
    )
    exec(source, scope)  # noqa: S102 (the source is made of field names only, as in dataclasses)
    return scope["build"](**names)


@functools.cache
def _mutable_class(cls: Any) -> type:
    """Return a mutable class with the slots of ``cls``; objects belong to it while they are constructed."""
    bases = cls.__dict__.get("__orig_bases__", ())
    slots = {"__slots__": tuple(field.name for field in fields(cls))}
    return new_class(f"Mutable{cls.__name__}", bases, exec_body=lambda scope: scope.update(slots))


def _default(field: Field[Any], names: dict[str, Any]) -> str:
    """Return the source text of a field's default in the signature; add the objects that it refers to to ``names``."""
    if field.default_factory is not MISSING:
        names[f"make_{field.name}"] = field.default_factory
        return "=MISSING"
    if field.default is not MISSING:
        names[f"default_{field.name}"] = field.default
        return f"=default_{field.name}"
    return ""
