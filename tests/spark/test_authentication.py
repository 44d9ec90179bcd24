"""A Spark cluster on other machines is used with authentication and encryption, or not at all."""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path

import pytest

from spark.authentication import ENCRYPTION, SUBMIT_ARGUMENTS, authentication, check_authentication, secret_properties
from spark.errors import BadSparkSetting
from spark.session import make_session
from spark.settings import SparkSettings
from tests.environments import set_only

STANDALONE = "spark://h:7077"
SECRET = "s" * 32


def secret_file(folder: Path, secret: str = SECRET, mode: int = 0o600) -> str:
    file = folder / "secret"
    file.write_text(secret + "\n")
    file.chmod(mode)
    return str(file)


@pytest.mark.parametrize(
    ("remote", "missing"),
    [
        ("sc://h:15002", r"TLS \(use_ssl=true\) and a token"),
        ("sc://h:15002/;use_ssl=true", "lacks a token"),
        ("sc://h:15002/;token=abc", "lacks TLS"),
        ("sc://h:15002/;use_ssl=false;token=abc", "lacks TLS"),
        ("sc://h:15002/;use_ssl=true;token=", "lacks a token"),
    ],
)
def test_spark_connect_without_tls_or_token_is_refused_at_the_start(remote: str, missing: str) -> None:
    with pytest.raises(BadSparkSetting, match=missing) as caught:
        make_session(SparkSettings(remote=remote, store_url="s3://b"))
    assert "abc" not in str(caught.value)


def test_spark_connect_with_tls_and_a_token_is_allowed() -> None:
    check_authentication(SparkSettings(remote="sc://h:15002/;use_ssl=true;token=a%20b", store_url="s3://b"))


def test_a_standalone_master_without_a_secret_is_refused_at_the_start() -> None:
    with pytest.raises(BadSparkSetting, match="SPARK_SECRET_FILE"):
        make_session(SparkSettings(master=STANDALONE, store_url="s3://b"))


@pytest.mark.parametrize("before", [None, "--verbose pyspark-shell"])
def test_spark_gets_the_secret_in_a_private_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    if before is None:
        monkeypatch.delenv(SUBMIT_ARGUMENTS, raising=False)
    else:
        monkeypatch.setenv(SUBMIT_ARGUMENTS, before)
    settings = SparkSettings(master=STANDALONE, store_url="s3://b", secret_file=secret_file(tmp_path, "\\" + SECRET))
    check_authentication(settings)
    assert authentication(settings) == ENCRYPTION
    with secret_properties(settings):
        defaults, option, name, *others = shlex.split(os.environ[SUBMIT_ARGUMENTS])
        assert (defaults, option) == ("--load-spark-defaults", "--properties-file")
        assert others == shlex.split(before or "pyspark-shell")
        assert Path(name).read_text() == f"spark.authenticate.secret=\\\\{SECRET}\n"
        assert stat.S_IMODE(Path(name).stat().st_mode) == 0o600
    assert not Path(name).exists()
    assert os.environ.get(SUBMIT_ARGUMENTS) == before


@pytest.mark.parametrize(
    ("secret", "mode", "reason"),
    [
        (SECRET, 0o640, "chmod 600"),
        (SECRET, 0o604, "chmod 600"),
        ("short", 0o600, "5 characters"),
        (f"{SECRET}\n{SECRET}", 0o600, "one secret"),
    ],
)
def test_a_secret_that_others_may_know_is_refused(tmp_path: Path, secret: str, mode: int, reason: str) -> None:
    settings = SparkSettings(master=STANDALONE, store_url="s3://b", secret_file=secret_file(tmp_path, secret, mode))
    with pytest.raises(BadSparkSetting, match=reason) as caught:
        make_session(settings)
    assert secret not in str(caught.value)


def test_a_secret_file_that_is_missing_is_refused(tmp_path: Path) -> None:
    settings = SparkSettings(
        master=STANDALONE, store_url="s3://b", secret_file=str(tmp_path / "no"), allow_insecure=True
    )
    with pytest.raises(BadSparkSetting, match="cannot be read"):
        make_session(settings)


@pytest.mark.parametrize("master", ["yarn", "k8s://https://h:6443"])
def test_yarn_and_kubernetes_use_the_secrets_that_spark_makes(master: str) -> None:
    settings = SparkSettings(master=master, store_url="s3://b")
    check_authentication(settings)
    assert authentication(settings) == ENCRYPTION


@pytest.mark.parametrize("where", [{"master": STANDALONE}, {"master": "yarn"}, {"remote": "sc://h:15002"}])
def test_an_operator_may_go_without_it(where: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = {f"SPARK_{name.upper()}": value for name, value in where.items()}
    set_only(monkeypatch, cluster | {"ALLOW_INSECURE_SPARK": "1"})
    settings = SparkSettings.from_environment("s3://b")
    check_authentication(settings)
    assert authentication(settings) == {}
