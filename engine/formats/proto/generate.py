"""Regenerate ``*_pb2.py`` and their stubs from the engine's ``.proto`` files (grpcio-tools and mypy-protobuf)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def generate() -> None:
    """Compile every ``.proto`` file of the engine. Raises CalledProcessError."""
    sources = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "engine").rglob("*.proto"))]
    compiler = [sys.executable, "-m", "grpc_tools.protoc", "-I.", "--python_out=.", "--mypy_out=."]
    plugins = str(Path(sys.executable).parent)
    environment = os.environ | {"PATH": plugins + os.pathsep + os.environ.get("PATH", "")}
    subprocess.run([*compiler, *sources], cwd=ROOT, check=True, env=environment)


if __name__ == "__main__":
    generate()
