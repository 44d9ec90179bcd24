"""Makes the JVMs of tests start sooner: ``python -m tests.spark_classes`` keeps the classes that Spark loads in an
archive, which later JVMs map instead of reading, checking and linking some ten thousand of them.

A JVM that finds no archive, or one of other jars, starts as ever.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".lithify/spark-classes"
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Most JVMs of tests end before the compiler that takes its time has paid off."""
SESSION = """
from pyspark.sql import SparkSession
session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
session.range(0, 1000, 1, 4).mapInArrow(lambda batches: batches, "id long").groupBy().sum("id").collect()
session.stop()
process = session.sparkContext._gateway.proc
process.stdin.close()
process.wait()
"""


def _archive() -> Path:
    java = subprocess.run([_java(), "-version"], capture_output=True, text=True, check=True).stderr
    build = java.splitlines()[1].rsplit("build", 1)[-1].strip(" )")
    return FOLDER / f"{version('pyspark')}-{build}.jsa"


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    return f"{home}/bin/java" if home else "java"


def options() -> str:
    """Return what ``SPARK_SUBMIT_OPTS`` should say in tests."""
    archives = sorted(FOLDER.glob("*.jsa"))
    return f"{SHORT_LIVED} -Xlog:disable -XX:SharedArchiveFile={archives[0]}" if archives else SHORT_LIVED


def make() -> None:
    """Make the archive for this Spark and this Java, unless it is there."""
    archive = _archive()
    if archive.exists():
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    for old in FOLDER.iterdir():
        old.unlink()
    draft = archive.with_suffix(".draft")
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_SUBMIT_OPTS": f"{SHORT_LIVED} -Xlog:disable -XX:ArchiveClassesAtExit={draft}",
    }
    command = [sys.executable, "-c", SESSION]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if draft.exists():
        draft.rename(archive)
    else:
        print(f"no archive of Spark's classes, its JVMs start slower:\n{ended.stderr}", file=sys.stderr)


if __name__ == "__main__":
    make()
