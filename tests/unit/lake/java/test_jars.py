from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from kuvasz.config.model import Config
from kuvasz.errors import LakeError
from kuvasz.lake.java import jars, versions

SHOP = {"database": "shop", "urls": [{"url": "postgresql:///shop"}], "tables": {"items": None}}


def test_jars_are_found_where_java_keeps_them_whatever_home_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Else each start would resolve them again, over the network."""
    here = [jars.cached(coordinate) for coordinate in versions.CORE]
    monkeypatch.setenv("HOME", str(tmp_path))
    assert [jars.cached(coordinate) for coordinate in versions.CORE] == here
    assert all(here), "`make jars` brings them"


def test_jars_that_are_there_are_enough() -> None:
    assert jars.prove(Config(databases=[SHOP])) == "all there"


@pytest.fixture
def _nothing_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "cached", lambda _: None)
    monkeypatch.setattr(jars, "_CENTRAL", ("127.0.0.1", 1))


@pytest.mark.usefixtures("_nothing_cached")
def test_jars_that_are_neither_there_nor_to_be_had_are_told() -> None:
    with pytest.raises(LakeError) as told:
        jars.prove(Config(databases=[SHOP]), {})
    names = "iceberg-spark-runtime-4.1_2.13, sqlite-jdbc, postgresql"
    assert told.value.message == f"the jars {names} are not there, and 127.0.0.1 is not: connection refused"
    assert told.value.hint == jars.HINT


@pytest.mark.usefixtures("_nothing_cached")
def test_who_says_where_jars_are_from_is_believed() -> None:
    own = Config(databases=[SHOP], spark={"conf": {"spark.jars.ivySettings": "/etc/ivy.xml"}})
    assert jars.prove(own, {}) == "as spark.jars.ivySettings says"
    proxy = {"SPARK_SUBMIT_OPTS": "-Dhttps.proxyHost=proxy -Dhttps.proxyPort=3128"}
    assert jars.prove(Config(databases=[SHOP]), proxy) == "to be fetched through a proxy"


def test_a_warehouse_on_s3_needs_more_of_them() -> None:
    on_s3 = Config(databases=[SHOP], lake={"warehouse": "s3://lake/wh"})
    assert jars.coordinates(on_s3) == versions.CORE + versions.AWS
    assert jars.coordinates(Config(databases=[SHOP])) == versions.CORE


def test_every_jar_has_a_digest_and_those_that_are_here_have_it() -> None:
    assert versions.SHA256.keys() == {*versions.CORE, *versions.AWS}
    assert [one for one in versions.SHA256.values() if not re.fullmatch("[0-9a-f]{64}", one)] == []
    jars.check(versions.CORE)


def test_another_jar_than_was_tested_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    jar = tmp_path / "a.jar"
    jar.write_bytes(b"the right one")
    monkeypatch.setattr(jars, "cached", lambda _: jar)
    monkeypatch.setattr(versions, "SHA256", {"g:a:1": hashlib.sha256(b"the right one").hexdigest()})
    jars.check(["g:a:1"])
    jar.write_bytes(b"another one")
    with pytest.raises(LakeError) as told:
        jars.check(["g:a:1"])
    assert told.value.message == "the jar g:a:1 is not the one that kuvasz was tested with: its SHA-256 differs"
    assert told.value.hint == f"remove {jar} and start again; if it comes again, look at the repository it is from"
