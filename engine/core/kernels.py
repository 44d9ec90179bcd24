"""Selection of compiled kernels or their pure Python twins.

A kernel is a compiled module ``package._name``; its twin ``package._name_py`` defines what it does, and type checkers
read the twin. ``LITHIFY_PURE=1`` selects the twins.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

_implementations: dict[str, str] = {}


def load_kernel(kernel: str, *names: str, twin: str = "") -> tuple[Any, ...]:
    """Return the objects ``names`` of a kernel, or those of its twin if the kernel is not built.

    ``twin`` is the module of the twin if it is not ``{kernel}_py``. Raises ImportError for a kernel that is built but
    cannot be loaded.
    """
    implementation = "python"
    module = None
    if os.environ.get("LITHIFY_PURE") != "1":
        try:
            module = import_module(kernel)
            implementation = "compiled"
        except ModuleNotFoundError as error:
            if error.name != kernel:
                raise
    module = module or import_module(twin or f"{kernel}_py")
    _implementations[kernel] = implementation
    return tuple(getattr(module, name) for name in names)


def implementation_of(kernel: str) -> str:
    """Return ``compiled`` or ``python``: the implementation of a kernel in this process."""
    if kernel not in _implementations:
        load_kernel(kernel)
    return _implementations[kernel]
