"""Analyse the standard library as a linter does: tokens, syntax trees, symbol tables, bytecode, differences."""

from __future__ import annotations

import ast
import difflib
import dis
import io
import itertools
import symtable
import sysconfig
import textwrap
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

FILE_BYTES_MAX = 60_000
"""Maximum size of an analysed file, so that one iteration is shorter than a window."""


class ComplexityVisitor(ast.NodeVisitor):
    """Counts branches per function."""

    def __init__(self) -> None:
        self.branches: Counter[str] = Counter()
        self._function = "<module>"

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        outer, self._function = self._function, node.name
        self.generic_visit(node)
        self._function = outer

    def generic_visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.If | ast.For | ast.While | ast.Try | ast.BoolOp | ast.IfExp):
            self.branches[self._function] += 1
        super().generic_visit(node)


def main() -> None:
    """Analyse every file of the standard library, endlessly."""
    for path in itertools.cycle(sources()):
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source)
        rewritten = ast.unparse(tree)
        visitor = ComplexityVisitor()
        visitor.visit(tree)
        count_text(source)
        nested_symbols(symtable.symtable(source, str(path), "exec"))
        instruction_mix(source, str(path))
        changed_lines(source, rewritten)


def sources() -> list[Path]:
    """Return the files to analyse, small ones only."""
    library = Path(sysconfig.get_path("stdlib"))
    found = [*library.glob("*.py"), *library.glob("json/*.py"), *library.glob("email/*.py"), *library.glob("http/*.py")]
    return sorted(path for path in found if 0 < path.stat().st_size <= FILE_BYTES_MAX)


def count_text(source: str) -> Counter[str]:
    """Count names in a source by its tokens."""
    words: Counter[str] = Counter()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME:
            words[token.string] += 1
    return words


def nested_symbols(table: symtable.SymbolTable) -> int:
    """Count the symbols of a table and those inside it."""
    return len(table.get_symbols()) + sum(nested_symbols(child) for child in table.get_children())


def instruction_mix(source: str, filename: str) -> Counter[str]:
    """Count the instructions a source compiles to."""
    return Counter(instruction.opname for instruction in walk(compile(source, filename, "exec")))


def walk(code: object) -> Iterator[dis.Instruction]:
    """Yield the instructions of a code object and of those inside it."""
    if hasattr(code, "co_consts"):
        yield from dis.get_instructions(code)  # type: ignore[arg-type]
        for constant in code.co_consts:
            yield from walk(constant)


def changed_lines(before: str, after: str) -> int:
    """Count the lines of a difference between the first lines of two texts."""
    old, new = (textwrap.dedent(text).splitlines()[:150] for text in (before, after))
    return sum(1 for _ in difflib.unified_diff(old, new))


if __name__ == "__main__":
    main()
