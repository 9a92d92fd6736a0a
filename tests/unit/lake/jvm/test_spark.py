"""What is decided before Spark starts, and what is made of a start that fails."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from py4j import protocol

from kuvasz.config.load import load
from kuvasz.config.model import Config
from kuvasz.errors import ConfigError, LakeError
from kuvasz.lake.files.file_io import PRELOADED
from kuvasz.lake.java import jars, versions
from kuvasz.lake.jvm import spark

SHOP = {"database": "shop", "urls": [{"url": "postgresql:///shop"}], "tables": {"items": None}}


@pytest.mark.parametrize(
    ("said", "message", "hint"),
    [
        (
            ["\t\t::::::::::::::", "\t\t:: org.xerial#sqlite-jdbc;3: unresolved dependency: not found", "x" * 9],
            "the Iceberg jars were not fetched: :: org.xerial#sqlite-jdbc;3: unresolved dependency: not found",
            jars.HINT,
        ),
        (
            ["Error: Could not create the Java Virtual Machine."],
            "spark does not start with master local[*]: Error: Could not create the Java Virtual Machine.",
            "check `spark.master` and `spark.conf`; Spark's own lines are above",
        ),
        (
            [],
            "spark does not start with master local[*]: [JAVA_GATEWAY_EXITED] Java gateway process exited",
            "check `spark.master` and `spark.conf`; Spark's own lines are above",
        ),
    ],
)
def test_a_start_that_fails_says_why_in_a_line(said: list[str], message: str, hint: str) -> None:
    told = ["[JAVA_GATEWAY_EXITED] Java gateway process exited"]
    error = spark._no_start(Config(databases=[SHOP]), told, said)
    assert (error.message, error.hint) == (message, hint)


@pytest.fixture
def config_of(tmp_path: Path) -> Callable[..., Config]:
    """Makes the configuration of a Spark."""

    def make(lake: dict[str, Any] | None = None, **section: Any) -> Config:
        databases = [{"database": "none", "urls": [{"url": "postgresql:///none"}], "tables": {"none": None}}]
        lake = {"uri": f"jdbc:sqlite:{tmp_path}/c.db", "warehouse": str(tmp_path), **(lake or {})}
        file = tmp_path / "map.yaml"
        file.write_text(json.dumps({"lake": lake, "spark": section, "databases": databases}))
        return load(file, {}).config

    return make


def test_a_spark_inside_kuvasz_is_of_this_machine_alone(config_of: Callable[..., Config]) -> None:
    chosen = spark.settings(config_of())
    assert chosen["spark.driver.host"] == chosen["spark.driver.bindAddress"] == "127.0.0.1"
    assert chosen["spark.ui.enabled"] == "false"
    assert chosen["spark.authenticate"] == "true"


@pytest.mark.parametrize(
    ("master", "conf"),
    [
        ("yarn", {}),
        ("k8s://https://h:443", {}),
        ("spark://m:7077", {"spark.authenticate.secret": "s3cr3t"}),
    ],
)
def test_a_cluster_is_talked_to_with_a_secret_and_encrypted(
    config_of: Callable[..., Config], master: str, conf: dict[str, str]
) -> None:
    chosen = spark.settings(config_of(master=master, conf=conf))
    assert (chosen["spark.authenticate"], chosen["spark.network.crypto.enabled"]) == ("true", "true")


@pytest.mark.parametrize(
    ("master", "conf", "why"),
    [
        ("spark://m:7077", {}, "a standalone cluster needs"),
        ("yarn", {"spark.authenticate": "false"}, "`spark.authenticate` is off"),
        ("k8s://h", {"spark.network.crypto.enabled": "False"}, "`spark.network.crypto.enabled` is off"),
    ],
)
def test_one_without_is_refused_unless_the_map_says_that_it_may_be(
    config_of: Callable[..., Config], master: str, conf: dict[str, str], why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        config_of(master=master, conf=conf)
    chosen = spark.settings(config_of(master=master, conf=conf, allow_insecure=True))
    assert {name: chosen.get(name) for name in conf} == conf
    assert "true" not in {chosen.get("spark.authenticate"), chosen.get("spark.network.crypto.enabled")}


def test_tls_encrypts_as_well(config_of: Callable[..., Config]) -> None:
    conf = {"spark.network.crypto.enabled": "false", "spark.ssl.rpc.enabled": "true"}
    assert spark.settings(config_of(master="yarn", conf=conf))["spark.authenticate"] == "true"


def test_a_jar_in_the_cache_that_is_another_one_is_refused_before_java_starts(
    config_of: Callable[..., Config], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Else the start after one that was refused, or after somebody wrote there, would run it."""
    cache = tmp_path / ".ivy2.5.2" / "jars"
    cache.mkdir(parents=True)
    group, artifact, version = versions.CORE[0].split(":")
    (cache / f"{group}_{artifact}-{version}.jar").write_bytes(b"another one")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(LakeError, match=f"^the jar {versions.CORE[0]} is not the one that kuvasz was tested with"):
        spark.open_session(config_of())


def test_ivy_brings_no_jar_that_has_no_digest(
    config_of: Callable[..., Config], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jars, "cached", lambda _: None)
    chosen = spark.settings(config_of())
    assert chosen["spark.jars.packages"] == ",".join(versions.CORE)
    assert chosen["spark.jars.excludes"] == ",".join(versions.EXCLUDED)


@pytest.mark.parametrize(
    ("lake", "is_told"),
    [({"warehouse": "/lake"}, False), ({"warehouse": "file:///lake"}, False), ({"warehouse": "s3://lake"}, False),
     ({"warehouse": "gs://lake"}, True),
     ({"warehouse": "/lake", "properties": {"py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO"}}, True)],
)  # fmt: skip
def test_python_workers_are_forked_with_pyiceberg_where_they_need_it(
    config_of: Callable[..., Config], lake: dict[str, Any], is_told: bool
) -> None:
    assert (f"spark.executorEnv.{PRELOADED}" in spark.settings(config_of(lake=lake))) == is_told


@pytest.mark.process
def test_numpys_values_go_to_the_jvm_without_what_tests_of_pyspark_need() -> None:
    program = (
        "import sys, numpy as np; from py4j.protocol import INPUT_CONVERTER; from kuvasz.lake.jvm import spark\n"
        "spark._know_numpy()\n"
        "values = np.int64(1), np.arange(3), 1, object()\n"
        "print(*(any(one.can_convert(value) for one in INPUT_CONVERTER) for value in values))\n"
        "print('pyspark.testing' in sys.modules, 'pandas' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True", "False", "False", "False", "False"]


def test_bytes_of_the_jvm_are_decoded_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "OUTPUT_CONVERTER", dict(protocol.OUTPUT_CONVERTER))
    spark._take_bytes_whole()
    answer = protocol.SUCCESS + protocol.BYTES_TYPE + base64.b64encode(b"\x00\xff{}").decode()
    monkeypatch.setattr(protocol, "decode_bytearray", None)  # which looks at each of them
    found = protocol.get_return_value(answer, None)
    assert (found, type(found)) == (bytearray(b"\x00\xff{}"), bytearray)
