from __future__ import annotations

import ast
import functools
import pickle
from pathlib import Path

import pydantic
import pytest

from kuvasz.config import reference
from kuvasz.config.model import (
    Config,
    LakeConfig,
    PipelineConfig,
    Section,
    ServerConfig,
    SparkConfig,
    TableConfig,
)
from kuvasz.model import TableType
from tests.support.source_code import PACKAGE, files, tree

SHOP = {
    "database": "shop",
    "urls": [{"url": "postgresql://u:geheim@h/d", "sid": "eu"}],
    "tables": {"orders": None},
}


def test_defaults() -> None:
    config = Config(databases=[SHOP])
    assert config.lake == LakeConfig(
        type="jdbc", name="kuvasz", uri="jdbc:sqlite:lake/catalog.db", warehouse="lake/warehouse",
        namespace="kuvasz", format_version=3, properties={},
    )  # fmt: skip
    assert config.spark == SparkConfig(master="local[*]", conf={})
    assert config.server.address == "127.0.0.1:8000"
    pipeline = config.pipeline
    assert (pipeline.workers, pipeline.commit_interval, pipeline.commit_bytes) == (2, 1.0, 64 * 2**20)
    assert (pipeline.memory, pipeline.chunk_bytes, pipeline.transaction_spill_bytes) == (2**30, 2**23, 2**25)
    assert (pipeline.copy_rows_per_second, pipeline.copy_parallelism, pipeline.state) == (None, None, ".kuvasz")
    (group,) = config.databases
    assert (group.on_slot_lost, group.tables) == ("stop", {"orders": TableConfig()})
    table = group.tables["orders"]
    assert (table.type, table.on_schema_change, table.out_of_range) == (TableType.CLONE, "agree", "error")


def test_defaults_that_wait_in_memory_fit_into_little_memory() -> None:
    small = PipelineConfig(memory="16MB")
    assert (small.commit_bytes, small.transaction_spill_bytes) == (4 * 2**20, 2 * 2**20)


def test_no_more_is_read_ahead_than_workers_can_use() -> None:
    assert PipelineConfig().most_waiting_bytes == 256 * 2**20
    assert PipelineConfig(workers=8).most_waiting_bytes == 2**30
    assert PipelineConfig(memory="16MB").most_waiting_bytes == 16 * 2**20
    assert PipelineConfig(commit_bytes="64kB").most_waiting_bytes == 64 * 2**20


def test_readers_share_a_quarter_of_memory() -> None:
    assert PipelineConfig().share_bytes(1) == 256 * 2**20
    assert PipelineConfig().share_bytes(64) == 4 * 2**20
    assert PipelineConfig().share_bytes(5000) == 256 * 2**10


def test_nothing_changes_after_loading() -> None:
    with pytest.raises(pydantic.ValidationError, match="frozen"):
        PipelineConfig().workers = 3  # type: ignore[misc]


def test_no_text_of_a_config_shows_a_secret() -> None:
    config = Config(
        lake={
            "uri": "jdbc:postgresql://u:geheim@h/d?password=geheim",
            "properties": {"s3.secret-access-key": "geheim", "s3.endpoint": "http://s3", "token": "geheim"},
        },
        spark={"conf": {"spark.hadoop.fs.s3a.secret.key": "geheim", "spark.x": "1"}},
        databases=[SHOP],
    )
    for text in (repr(config), str(config), f"{config}", f"{config.lake!r}", str(config.databases[0].urls)):
        assert "geheim" not in text
    assert "'s3.endpoint': 'http://s3', 'token': '***'" in repr(config)
    assert config.lake.properties["token"] == "geheim"
    assert config.databases[0].urls[0].url.get() == "postgresql://u:geheim@h/d"
    assert "geheim" not in str(config.model_dump(mode="json", include={"databases"}))


def test_not_even_pydantics_own_error_shows_a_value() -> None:
    wrong = {**SHOP, "urls": [{"url": "mysql://u:geheim@h/d"}]}
    with pytest.raises(pydantic.ValidationError) as caught:
        Config(databases=[wrong])
    assert "geheim" not in str(caught.value)


def test_a_config_survives_pickling() -> None:
    config = Config(databases=[SHOP])
    assert pickle.loads(pickle.dumps(config)) == config


def test_paths_of_the_lake_are_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lake = LakeConfig()
    assert lake.warehouse_location == f"file://{tmp_path}/lake/warehouse"
    assert lake.catalog_uri == f"jdbc:sqlite:{tmp_path}/lake/catalog.db"
    assert lake.sqlite_file == tmp_path / "lake" / "catalog.db"
    assert PipelineConfig().state_folder == tmp_path / ".kuvasz"
    assert LakeConfig(warehouse="file:/x/y/").warehouse_location == "file:///x/y"
    assert LakeConfig(uri="jdbc:sqlite:file:a.db?mode=ro").sqlite_file == tmp_path / "a.db"


@pytest.mark.parametrize("warehouse", ["s3://bucket/lake", "gs://b", "file:///x", "hdfs://n:8020/w"])
def test_a_warehouse_with_a_scheme_is_kept(warehouse: str) -> None:
    assert LakeConfig(warehouse=f"{warehouse}/").warehouse_location == warehouse


def test_a_rest_warehouse_may_be_a_name() -> None:
    assert LakeConfig(type="rest", uri="https://c", warehouse="main").warehouse_location == "main"
    assert LakeConfig(type="rest", uri="https://c").sqlite_file is None
    assert LakeConfig(type="rest", uri="https://c").catalog_uri == "https://c"


def test_an_address_gives_host_and_port() -> None:
    assert (ServerConfig(address="[::1]:8000").host, ServerConfig(address="[::1]:8000").port) == ("::1", 8000)
    assert (ServerConfig(address=None).host, ServerConfig(address=None).port) == (None, None)


def test_properties_are_texts_as_they_were_written() -> None:
    assert SparkConfig(conf={"a": 8, "b": True, "c": "x"}).conf == {"a": "8", "b": "true", "c": "x"}


@pytest.mark.parametrize(
    ("given", "is_on"), [("off", False), (False, False), ("on", True), (None, True), ({"enabled": False}, False)]
)
def test_maintenance_is_switched_by_a_word(given: object, is_on: bool) -> None:
    assert Config(databases=[SHOP], maintenance=given).maintenance.enabled is is_on


@pytest.mark.parametrize(
    ("given", "about"), [("off", None), (False, None), (None, None), ("_kuvasz", "_kuvasz"), ("a.b", "a.b")]
)
def test_tables_about_the_lake_are_named_or_off(given: object, about: str | None) -> None:
    assert Config(databases=[SHOP], lake={"about": given}).lake.about == about
    assert Config(databases=[SHOP]).lake.about is None


# Every option is read by something: one that nobody reads would silently do nothing.

MODEL = PACKAGE / "config" / "model.py"

OPTIONS = [(model, option) for model in dict.fromkeys(reference.TABLES.values()) for option in model.model_fields]

#: Options that the configuration itself carries out, by the name of what it gives to others.
RESOLVED = {
    ("DatabaseConfig", "urls"): "config/sources.py",
    ("DatabaseConfig", "tables"): "config/sources.py",
    ("UrlConfig", "url"): "config/sources.py",
    ("UrlConfig", "sid"): "config/sources.py",
    ("UrlConfig", "schemas"): "config/sources.py",
    ("UrlConfig", "origin"): "config/sources.py",
    ("DatabaseConfig", "database"): "config/sources.py",
    ("DatabaseConfig", "on_slot_lost"): "config/sources.py",
    ("DatabaseConfig", "consistency"): "config/sources.py",
    ("TableConfig", "target"): "config/sources.py",
    ("TableConfig", "partitions_regex"): "config/sources.py",
    ("TableConfig", "excepted"): "config/patterns/expansion.py",
    ("LakeConfig", "namespace"): "config/sources.py",
    ("SparkConfig", "allow_insecure"): "config/check.py",
}


#: What a section is called where it is read: `self._config.interval`, `spec.config.filter`, `pipeline.workers`.
SECTIONS = {"config", *reference.SECTIONS}


def reads(file: Path, of: set[str] | None = None) -> set[str]:
    """The attributes that a module reads, of objects with these names alone."""
    found = set()
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            name = getattr(node.value, "attr", getattr(node.value, "id", "")).lstrip("_")
            if of is None or name in of:
                found.add(node.attr)
    return found


@functools.cache
def properties(model: type[Section]) -> dict[str, set[str]]:
    """The properties and methods of a section -> the attributes of it that they read."""
    (section,) = [node for node in tree(MODEL).body if isinstance(node, ast.ClassDef) and node.name == model.__name__]
    return {
        member.name: {
            node.attr for node in ast.walk(member)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
        }
        for member in section.body if isinstance(member, ast.FunctionDef)
    }  # fmt: skip


@pytest.fixture(scope="module")
def outside() -> set[str]:
    """What is read outside of the configuration's own package."""
    modules = [file for file in files() if file.parent != PACKAGE / "config"]
    return set().union(*(reads(file, SECTIONS) for file in modules))


@pytest.mark.parametrize(("model", "option"), OPTIONS, ids=lambda value: getattr(value, "__name__", value))
def test_every_option_is_read(model: type[Section], option: str, outside: set[str]) -> None:
    if (resolver := RESOLVED.get((model.__name__, option))) is not None:
        assert option in reads(PACKAGE / resolver)
        return
    ways = {option}
    for _ in range(3):  # properties may use one another
        ways |= {name for name, used in properties(model).items() if used & ways}
    assert ways & outside, f"nobody reads {model.__name__}.{option}"
