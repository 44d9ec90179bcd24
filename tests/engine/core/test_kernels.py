"""Kernels are compiled in every process that does not ask for their twins, and a broken build is an error."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from engine.core.kernels import implementation_of, load_kernel

ENGINE = Path(__file__).parents[3] / "engine"
KERNELS = sorted(
    ".".join(twin.relative_to(ENGINE.parent).with_suffix("").parts).removesuffix("_py")
    for twin in ENGINE.rglob("_*_py.py")
    if twin.with_name(twin.name.removesuffix("_py.py") + ".pyx").exists()
)


def test_kernels_are_found() -> None:
    assert "engine.placement._jump_hash" in KERNELS


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_build_loads_the_compiled_kernel(kernel: str) -> None:
    assert implementation_of(kernel) == ("python" if os.environ.get("LITHIFY_PURE") == "1" else "compiled")


def test_without_the_kernel_its_twin_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "_no_such_kernel_py.py").write_text("ANSWER = 7\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert load_kernel("_no_such_kernel", "ANSWER") == (7,)
    assert implementation_of("_no_such_kernel") == "python"


@pytest.mark.skipif(os.environ.get("LITHIFY_PURE") == "1", reason="the twins were asked for")
def test_a_kernel_that_cannot_be_loaded_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "_broken_kernel.py").write_text("import a_module_that_is_missing\n")
    (tmp_path / "_broken_kernel_py.py").write_text("ANSWER = 7\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="a_module_that_is_missing"):
        load_kernel("_broken_kernel", "ANSWER")
    assert "_broken_kernel_py" not in sys.modules
