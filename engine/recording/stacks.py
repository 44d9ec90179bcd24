"""Stacks of a running program, and their names, which are resolved after its end.

While recording, a stack is a tuple of (file, line, code) places, which are cheap to create. A ``Namer`` converts places
to frames "module.qualified_name" with a path relative to the import path, so that names do not depend on the machine.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

from engine.formats.pprof.pprof_build import Frame

STACK_FRAMES_MAX = 128
"""Maximum frames kept of a stack, from the leaf."""

_OWN_FOLDER = str(Path(__file__).parent)
_WORKLOADS = str(Path(__file__).parent / "workloads")


class Place(NamedTuple):
    """The position of a frame. ``code`` is None if only file and line are known (allocations)."""

    filename: str
    line: int
    code: CodeType | None


Stack = tuple[Place, ...]
"""Places, leaf first."""


def stack_of(frame: FrameType | None) -> Stack:
    """Return the stack that ends in ``frame``, without the frames of the recorder and of program start-up."""
    places: list[Place] = []
    while frame is not None and len(places) < STACK_FRAMES_MAX:
        code = frame.f_code
        if not is_scaffolding(code.co_filename):
            places.append(Place(code.co_filename, frame.f_lineno or code.co_firstlineno, code))
        frame = frame.f_back
    return tuple(places)


def is_scaffolding(filename: str) -> bool:
    """Return whether a file belongs to the recorder or to program start-up."""
    if filename.startswith(_OWN_FOLDER):
        return not filename.startswith(_WORKLOADS)
    return filename == "<frozen runpy>" or filename.endswith(("/runpy.py", "/tracemalloc.py"))


class Namer:
    """Resolves places to frames; compiles a source file if only a line of it is known."""

    def __init__(self) -> None:
        self._modules = {
            module.__file__: name
            for name, module in list(sys.modules.items())
            if isinstance(getattr(module, "__file__", None), str)
        }
        self._folders = sorted({path for path in sys.path if path}, key=len, reverse=True)
        self._codes_by_line: dict[str, dict[int, CodeType]] = {}
        self._frames: dict[Place, Frame] = {}

    def frame(self, place: Place) -> Frame:
        """Return the frame of a place."""
        known = self._frames.get(place)
        if known is None:
            known = self._frames[place] = self._name(place)
        return known

    def _name(self, place: Place) -> Frame:
        module, filename = self._module(place.filename), self._relative(place.filename)
        code = place.code or self._code_at(place.filename, place.line)
        if code is None:
            return Frame(module, filename, 0, place.line)
        return Frame(f"{module}.{code.co_qualname}", filename, code.co_firstlineno, place.line)

    def _module(self, filename: str) -> str:
        if filename.startswith("<"):
            return filename.strip("<>").removeprefix("frozen ")
        known = self._modules.get(filename)
        if known and known != "__main__":
            return known
        return self._relative(filename).removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    def _relative(self, filename: str) -> str:
        for folder in self._folders:
            if filename.startswith(folder + "/"):
                return filename[len(folder) + 1 :]
        return filename

    def _code_at(self, filename: str, line: int) -> CodeType | None:
        if filename not in self._codes_by_line:
            self._codes_by_line[filename] = dict(_codes_by_line(filename))
        return self._codes_by_line[filename].get(line)


def _codes_by_line(filename: str) -> Iterator[tuple[int, CodeType]]:
    """Yield (line, code object) for a source file; inner functions after enclosing ones."""
    try:
        source = Path(filename).read_bytes()
        todo = [compile(source, filename, "exec", dont_inherit=True, optimize=0)]
    except (OSError, SyntaxError, ValueError):
        return
    while todo:
        code = todo.pop()
        for _, _, line in code.co_lines():
            if line is not None:
                yield line, code
        todo.extend(constant for constant in code.co_consts if isinstance(constant, CodeType))
