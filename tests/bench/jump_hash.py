"""Speed of jump consistent hashing: compiled arrays, the same loop in plain C, and pure Python.

The plain C follows the definition, one key after another, compiled here with the flags of the kernels. All run
alternately in one process on one core, so that interference by other load affects each of them.
"""

from __future__ import annotations

import ctypes
import statistics
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from engine.core.kernels import implementation_of
from engine.placement import _jump_hash_py, jump_hash
from tests.bench.figures import Figures, cpu_seconds

NAME = "jump_hash"
SEED = 20261121
BUCKETS = 1000
KEYS, KEYS_FULL = 500_000, 2_000_000
TWIN_KEYS = 5_000
REPEATS = 9
PLAIN_C = """
#include <stddef.h>
#include <stdint.h>
void jump_hash_array(const uint64_t *keys, int32_t *out, size_t count, int64_t buckets) {
    for (size_t i = 0; i < count; i++) {
        uint64_t key = keys[i];
        int64_t bucket = -1, following = 0;
        while (following < buckets) {
            bucket = following;
            key = key * 2862933555777941757ULL + 1;
            following = (int64_t)((double)(bucket + 1) * ((double)(1LL << 31) / (double)((key >> 33) + 1)));
        }
        out[i] = (int32_t)bucket;
    }
}
"""


def run(full: bool = False) -> Figures:
    """Run the benchmark; the figures are CPU time of one core, medians of alternating repeats."""
    keys = np.random.default_rng(SEED).integers(0, 1 << 64, KEYS_FULL if full else KEYS, np.uint64)
    in_c = plain_c()
    assert (in_c(keys) == jump_hash.jump_hash_array(keys, BUCKETS)).all()
    few = keys[:TWIN_KEYS].tolist()
    times: dict[str, list[float]] = {"ours": [], "c": [], "twin": []}
    for _ in range(REPEATS):
        times["ours"].append(cpu_seconds(lambda: jump_hash.jump_hash_array(keys, BUCKETS)))
        times["c"].append(cpu_seconds(lambda: in_c(keys)))
        times["twin"].append(cpu_seconds(lambda: _jump_hash_py.jump_hash_array(few, BUCKETS)))
    ours, c, twin = (statistics.median(times[name]) for name in ("ours", "c", "twin"))
    keys_per_s = len(keys) / ours
    return Figures(
        parameters={
            "implementation": implementation_of("engine.placement._jump_hash"),
            "buckets": BUCKETS,
            "keys": len(keys),
        },
        figures={
            "keys_per_s_core": keys_per_s,
            "ratio_to_c": c / ours,
            "speedup_over_twin": keys_per_s / (TWIN_KEYS / twin),
            "c_keys_per_s_core": len(keys) / c,
        },
    )


def plain_c() -> Callable[[np.ndarray], np.ndarray]:
    """Compile the plain loop and return it as a function of the keys."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "jump_hash.c", Path(folder) / "jump_hash.so"
        source.write_text(PLAIN_C)
        subprocess.run([compiler, "-O3", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
        loop = ctypes.CDLL(str(library)).jump_hash_array

    def buckets_of(keys: np.ndarray) -> np.ndarray:
        out = np.empty(len(keys), np.int32)
        pointers = (ctypes.c_void_p(keys.ctypes.data), ctypes.c_void_p(out.ctypes.data))
        loop(*pointers, ctypes.c_size_t(len(keys)), ctypes.c_int64(BUCKETS))
        return out

    return buckets_of
