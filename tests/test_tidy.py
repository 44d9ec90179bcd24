"""What no linter holds: sizes, opening docstrings, names, twins, and words that must not be committed."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).parents[1]
MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
KERNEL_FUNCTION_LINES_MAX = 100
PACKAGE_MODULES_MAX = 26
LONGER = {
    "engine/lanes/tsdb/merge/_series_merge.pyx": 581,
    "engine/ingest/segments/_normal_profile.pyx": 526,
    "engine/formats/prometheus/chunks/_xor.pyx decode_samples": 127,
}
"""Lines of what is longer than allowed: each is one loop over columns in registers or one object. They may shrink."""
DUPLICATE_LINES_MAX = 8
"""Equal lines of two places of the code without comments, docstrings and imports, each statement on one line."""
BANNED_MODULE_NAMES = {"utils", "util", "common", "misc", "helpers", "helper", "manager", "stuff"}
# Written in pieces, so that this file does not find itself.
BANNED_TEXT = ("/wor" + "k/", "/roo" + "t/", "bash_" + "jobs", "TO" + "DO", "FIX" + "ME")
SHIPPED = ("engine", "spark", "tasks", "webadmin")


def _tracked() -> list[Path]:
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    return [ROOT / name for name in listing.stdout.decode().split("\0") if name and (ROOT / name).is_file()]


TRACKED = _tracked()
MODULES = [path for path in TRACKED if path.suffix == ".py" and not path.name.endswith("_pb2.py")]
SHIPPED_MODULES = [path for path in MODULES if path.relative_to(ROOT).parts[0] in SHIPPED]


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_no_module_is_longer_than_one_idea() -> None:
    written = [path for path in MODULES if "migrations" not in path.parts]
    long = {_name(path): count for path in written if (count := len(path.read_text().splitlines())) > MODULE_LINES_MAX}
    assert not long


def test_kernels_and_their_functions_only_get_shorter() -> None:
    kernels = {_name(path): path.read_text().splitlines() for path in TRACKED if path.suffix in {".pyx", ".pxd"}}
    lengths = {name: len(lines) for name, lines in kernels.items() if len(lines) > MODULE_LINES_MAX}
    for name, lines in kernels.items():
        for number, line in enumerate(lines):
            function = re.match(r"( *)(?:cdef|cpdef|def) (?!class|extern|struct|enum)(?:[^=(]*\W)?(\w+)\(", line)
            if function is None:
                continue
            inside = re.compile(rf"$| {{{len(function[1]) + 1}}}|\)")
            end = next((at for at in range(number + 1, len(lines)) if not inside.match(lines[at])), len(lines))
            if end - number > KERNEL_FUNCTION_LINES_MAX:
                lengths[f"{name} {function[2]}"] = len("\n".join(lines[number:end]).rstrip().splitlines()) - 1
    assert lengths == LONGER


def test_no_package_holds_more_than_it_can_say() -> None:
    packages: dict[str, int] = {}
    for path in SHIPPED_MODULES:
        packages[_name(path.parent)] = packages.get(_name(path.parent), 0) + 1
    assert not {name: count for name, count in packages.items() if count > PACKAGE_MODULES_MAX}


class _Bare(ast.NodeTransformer):
    """Removes docstrings and imports."""

    def visit(self, node: ast.AST) -> Any:
        self.generic_visit(node)
        if isinstance(body := getattr(node, "body", None), list):
            node.body = [part for part in body if not _says_only(part)] or [ast.Pass()]  # type: ignore[attr-defined]  # it has a body
        return node


def _says_only(part: ast.stmt) -> bool:
    is_text = isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant)
    return is_text or isinstance(part, ast.Import | ast.ImportFrom)


def test_no_two_places_share_more_lines_than_a_helper_costs() -> None:
    places: dict[tuple[str, ...], set[str]] = {}
    for path in SHIPPED_MODULES:
        if "migrations" in path.parts or path.stem.endswith("_py"):  # written by Django; twins of kernels
            continue
        code = ast.unparse(_Bare().visit(ast.parse(path.read_text())))
        lines = [line.strip() for line in code.splitlines() if len(line.strip()) > 1]
        for start in range(len(lines) - DUPLICATE_LINES_MAX):
            window = tuple(lines[start : start + DUPLICATE_LINES_MAX + 1])
            places.setdefault(window, set()).add(f"{_name(path)}, line of code {start}")
    assert not [found for found in places.values() if len(found) > 1]


def test_no_function_is_longer_than_a_page() -> None:
    long = [
        f"{_name(path)}:{function.lineno} {function.name}"
        for path in SHIPPED_MODULES
        for function in _functions(ast.parse(path.read_text()))
        if (function.end_lineno or 0) - function.lineno >= FUNCTION_LINES_MAX
    ]
    assert not long


def test_every_shipped_module_says_what_it_is_for() -> None:
    silent = [
        _name(path)
        for path in SHIPPED_MODULES
        if path.read_text().strip()
        and "migrations" not in path.parts
        and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert not silent


def test_no_module_has_a_name_that_says_nothing() -> None:
    assert not [_name(path) for path in MODULES if path.stem in BANNED_MODULE_NAMES]


def _uses(module: str, sources: dict[str, str]) -> set[str]:
    """Names of the compiled modules that ``module`` takes in at compile time, directly or not."""
    found, waiting = {module}, [module]
    while waiting:
        source = sources[waiting.pop()]
        new = {name for name in sources if re.search(rf"\b{name} cimport\b", source)} - found
        found |= new
        waiting.extend(new)
    return found


def test_every_compiled_module_is_tested_by_name_or_is_part_of_one_that_is() -> None:
    tests = "\n".join(path.read_text() for path in MODULES if "tests" in path.relative_to(ROOT).parts)
    sources = {path.stem: path.read_text() for path in TRACKED if path.suffix == ".pyx"}
    tested: set[str] = set()
    for name in sources:
        if re.search(rf"\b_?{name.removeprefix('_')}\b", tests):  # by its own name or by that of its loader
            tested |= _uses(name, sources)
    assert not set(sources) - tested


def test_admin_classes_decide_nothing() -> None:
    words = ("transaction.atomic", ".save(", ".update(", "bulk_create(", ".delete(")
    deciding = [
        f"{_name(path)}: {word}"
        for path in SHIPPED_MODULES
        if path.stem.startswith("admin") or path.parent.name == "admin"
        for word in words
        if word in path.read_text()
    ]
    assert not deciding


@pytest.mark.parametrize("word", BANNED_TEXT)
def test_nothing_of_one_machine_or_unfinished_is_committed(word: str) -> None:
    texts = [
        path for path in TRACKED if path.suffix in {".py", ".pyx", ".pxd", ".md", ".sh", ".toml", ".html", ".h", ""}
    ]
    assert not [_name(path) for path in texts if path.name != "LICENSE" and word in path.read_text(errors="replace")]


def test_no_example_fails_because_the_machine_is_busy() -> None:
    assert settings.default.deadline is None
    assert HealthCheck.too_slow in settings.default.suppress_health_check
    # A list of a test's own replaces the profile's.
    lists = re.compile(r"suppress_health_check=(\[[^]]*\])")
    own = [(path, found) for path in MODULES for found in lists.findall(path.read_text()) if "tests" in path.parts]
    assert not [_name(path) for path, found in own if "too_slow" not in found]
