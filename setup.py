"""Builds the compiled kernels: every ``engine/**/*.pyx`` becomes an extension module beside its Python twin.

``LITHIFY_DEBUG_BUILD=1`` turns bounds, overflow and None checks back on, for the suite and the fuzzers.
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

DEBUG_BUILD = os.environ.get("LITHIFY_DEBUG_BUILD") == "1"

DIRECTIVES = {
    "language_level": 3,
    "embedsignature": True,
    "freethreading_compatible": False,
    "boundscheck": DEBUG_BUILD,
    "wraparound": False,
    "initializedcheck": DEBUG_BUILD,
    "cdivision": not DEBUG_BUILD,
    "overflowcheck": False,
    "nonecheck": DEBUG_BUILD,
}
# Comparisons of signed with unsigned stand in what Cython writes, not in what we write.
QUIET = ["-Wno-sign-compare", "-Wno-unused-function"]
# Whoever sets CFLAGS says by how much to optimise: flags given here would come after those and win.
OPTIMISED = [] if "-O" in os.environ.get("CFLAGS", "") else ["-O3"]
COMPILE_ARGS = [*QUIET, "-O1", "-g0", "-DLITHIFY_DEBUG_BUILD"] if DEBUG_BUILD else [*QUIET, *OPTIMISED, "-g0"]
# The headers that all kernels share, also those in subpackages.
HEADER_FOLDERS = ["engine/core"]


def _module_name(path: Path) -> str:
    return ".".join(path.with_suffix("").parts)


def _extensions() -> list[Extension]:
    return [
        Extension(_module_name(path), [str(path)], include_dirs=HEADER_FOLDERS, extra_compile_args=COMPILE_ARGS)
        for path in sorted(Path("engine").rglob("*.pyx"))
    ]


# The C files of a debug build lie apart: a later fast build must not find and compile them.
C_FOLDER = ".lithify/debug-c" if DEBUG_BUILD else None

if __name__ == "__main__":  # the processes that cythonize starts may import this file
    setup(
        # ./dev compiles them in place by itself, side by side; pip would do it once more in a folder of its own.
        ext_modules=[]
        if os.environ.get("LITHIFY_KERNELS_APART")
        else cythonize(
            _extensions(),
            compiler_directives=DIRECTIVES,
            build_dir=C_FOLDER,
            force=DEBUG_BUILD,
            nthreads=os.cpu_count(),
            quiet=True,
        )
    )
