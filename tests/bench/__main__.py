"""``python -m tests.bench [NAME] [--json] [--full]``: run one benchmark, or all of them, one output line each.

Every module of this package with ``NAME`` and ``run(full) -> Figures`` is a benchmark. With ``--json`` the last line of
each is one JSON object; ``--full`` runs the larger, slower variant.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import pkgutil
import sys
from types import ModuleType

import tests.bench
from tests.bench.figures import Figures, machine


def benchmarks() -> dict[str, ModuleType]:
    """Return all benchmarks by name."""
    modules = (
        importlib.import_module(f"tests.bench.{found.name}")
        for found in pkgutil.iter_modules(tests.bench.__path__)
        if not found.name.startswith("_")
    )
    return {module.NAME: module for module in modules if hasattr(module, "NAME")}


def line(name: str, result: Figures, *, as_json: bool) -> str:
    """Return a result as one line."""
    if as_json:
        document = {
            "name": name,
            "parameters": result.parameters,
            "figures": result.figures,
            "machine": machine() | {"date": datetime.datetime.now(datetime.UTC).date().isoformat()},
        }
        return json.dumps(document)
    return f"{name}: " + ", ".join(f"{figure} {value:.6g}" for figure, value in result.figures.items())


def main(arguments: list[str]) -> int:
    """Run the benchmarks of the arguments; return 2 for an unknown name."""
    parser = argparse.ArgumentParser(prog="./dev bench", description="Run the benchmarks.")
    parser.add_argument("name", nargs="?", help="the benchmark to run (default: all)")
    parser.add_argument("--json", action="store_true", help="print each result as a JSON object")
    parser.add_argument("--full", action="store_true", help="run the larger, slower variant")
    options = parser.parse_args(arguments)
    found = benchmarks()
    if options.name and options.name not in found:
        print(f"no benchmark {options.name}; there are: {', '.join(sorted(found))}", file=sys.stderr)
        return 2
    for name in [options.name] if options.name else sorted(found):
        print(line(name, found[name].run(options.full), as_json=options.json), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
