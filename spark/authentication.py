"""Authentication between a node and a Spark cluster, and the configurations that are rejected without it.

A client that reaches a driver or an executor without authentication can run programs there, with the credentials of the
store. So a standalone master needs a secret that all its processes share; YARN and Kubernetes pass a secret that
Spark makes for each application; Spark Connect needs TLS and a token (docs/how-to/production.md).
"""

from __future__ import annotations

import os
import shlex
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

from spark.errors import BadSparkSetting
from spark.settings import SparkSettings

SECRET_CHARACTERS_MIN = 32
SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
INSECURE = "or allow a cluster without authentication with ALLOW_INSECURE_SPARK=1"
ENCRYPTION = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    # Without this, a peer may select the older protocol with weaker encryption.
    "spark.network.crypto.saslFallback": "false",
}


def check_authentication(cluster: SparkSettings) -> None:
    """Raise BadSparkSetting if a cluster on other machines would be used without authentication and encryption."""
    if cluster.remote:
        if not cluster.allow_insecure:
            _check_connect(cluster.remote)
    elif cluster.master.startswith("spark://"):
        if cluster.secret_file:
            _read_secret(cluster.secret_file)
        elif not cluster.allow_insecure:
            raise BadSparkSetting(
                f"{cluster.master} is a standalone master and needs a secret: put its spark.authenticate.secret "
                f"into a file and name it with SPARK_SECRET_FILE, {INSECURE}"
            )


def authentication(cluster: SparkSettings) -> dict[str, str]:
    """Return the configuration of a session on other machines, without the secret. Spark Connect needs none here."""
    if cluster.master.startswith("spark://"):
        return ENCRYPTION if cluster.secret_file else {}
    # YARN and Kubernetes: Spark makes a secret for each application and gives it to its executors.
    return {} if cluster.allow_insecure else ENCRYPTION


@contextmanager
def secret_properties(cluster: SparkSettings) -> Iterator[None]:
    """Pass the secret of a standalone cluster to the JVM that PySpark starts within the block.

    PySpark writes the configuration of a session into the command line of the JVM, which all users of the machine can
    read. The secret is passed in a properties file instead (mode 0600), deleted at the end of the block.
    """
    if not (cluster.master.startswith("spark://") and cluster.secret_file):
        yield
        return
    secret = _read_secret(cluster.secret_file).replace("\\", "\\\\")
    before = os.environ.get(SUBMIT_ARGUMENTS)
    with tempfile.NamedTemporaryFile("w", prefix="lithify-spark-secret-", suffix=".conf") as file:
        file.write(f"spark.authenticate.secret={secret}\n")
        file.flush()
        arguments = ["--load-spark-defaults", "--properties-file", file.name]
        os.environ[SUBMIT_ARGUMENTS] = f"{shlex.join(arguments)} {before or 'pyspark-shell'}"
        try:
            yield
        finally:
            del os.environ[SUBMIT_ARGUMENTS]
            if before is not None:
                os.environ[SUBMIT_ARGUMENTS] = before


def _read_secret(name: str) -> str:
    path = Path(name)
    try:
        mode, secret = path.stat().st_mode, path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadSparkSetting(f"SPARK_SECRET_FILE={name!r} cannot be read: {error}") from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise BadSparkSetting(f"SPARK_SECRET_FILE={name!r} is accessible to other users: chmod 600 {name}")
    if len(secret) < SECRET_CHARACTERS_MIN:
        raise BadSparkSetting(
            f"SPARK_SECRET_FILE={name!r} has {len(secret)} characters, at least {SECRET_CHARACTERS_MIN} are required: "
            "create one with openssl rand -hex 32"
        )
    if any(character.isspace() for character in secret):
        raise BadSparkSetting(f"SPARK_SECRET_FILE={name!r} must contain one secret without white space")
    return secret


def _check_connect(remote: str) -> None:
    parts = urlsplit(remote)
    words = [word.partition("=") for word in parts.path.lstrip("/;").split(";")]
    given = {name: unquote(value) for name, _, value in words}
    missing = [
        *(["TLS (use_ssl=true)"] if given.get("use_ssl", "").lower() != "true" else []),
        *(["a token (token=…)"] if not given.get("token") else []),
    ]
    if missing:
        raise BadSparkSetting(
            f"SPARK_REMOTE=sc://{parts.hostname} lacks {' and '.join(missing)}: use "
            f"sc://host:port/;use_ssl=true;token=… and a server that checks both, {INSECURE}"
        )
