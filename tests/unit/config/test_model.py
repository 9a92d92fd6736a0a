from __future__ import annotations

import ast
import datetime
import functools
import pickle
from pathlib import Path

import pydantic
import pytest

from kuvasz.config import reference
from kuvasz.config.model import (
    Config,
    CopyConfig,
    CopyLimits,
    LakeConfig,
    PipelineConfig,
    Section,
    ServerConfig,
    SparkConfig,
    TableConfig,
)
from kuvasz.config.secrets import SecretUrl
from kuvasz.model import TableType
from tests.support.source_code import PACKAGE, files, nodes, tree

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


def test_a_cluster_keeps_indexes_beside_its_tables_where_it_may() -> None:
    def place(**options: object) -> str | None:
        cluster = {"coordinator": "postgresql:///c", "indexes": options.pop("indexes", None)}
        return Config.model_validate({"databases": [SHOP], "lake": options, "cluster": cluster}).indexes_location

    assert Config(databases=[SHOP]).indexes_location is None, "one process has its own"
    assert place(warehouse="s3://lake/wh/") == "s3://lake/wh/_kuvasz/indexes"
    assert place(warehouse="/srv/lake") == "file:///srv/lake/_kuvasz/indexes"
    assert place(warehouse="s3://lake/wh", type="hive", uri="thrift://h:9083") == "s3://lake/wh/_kuvasz/indexes"
    rest = {"type": "rest", "uri": "https://catalog"}
    assert place(warehouse="s3://lake/wh", **rest) is None, "it may lend what opens tables alone"
    assert place(warehouse="s3://lake/wh", indexes="s3://lake/i", **rest) == "s3://lake/i"
    assert place(indexes="/srv/i") == "file:///srv/i"
    for off in ("off", False):
        assert place(warehouse="s3://lake/wh", indexes=off) is None


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

OPTIONS = [
    (model, option) for model in dict.fromkeys(reference.TABLES.values()) for option in model.model_fields
    if not any(option in getattr(base, "model_fields", ()) for base in model.__bases__)  # which is looked at itself
]  # fmt: skip

#: Options that the configuration itself carries out, by the name of what it gives to others.
RESOLVED = {
    ("DatabaseConfig", "urls"): "config/sources.py",
    ("LakeConfig", "branch"): "config/sources.py",
    ("TableConfig", "branch"): "config/sources.py",
    ("DatabaseConfig", "tables"): "config/sources.py",
    ("UrlConfig", "url"): "config/sources.py",
    ("UrlConfig", "sid"): "config/sources.py",
    ("UrlConfig", "schemas"): "config/sources.py",
    ("UrlConfig", "replication_url"): "config/sources.py",
    ("UrlConfig", "origin"): "config/sources.py",
    ("DatabaseConfig", "database"): "config/sources.py",
    ("DatabaseConfig", "on_slot_lost"): "config/sources.py",
    ("DatabaseConfig", "consistency"): "config/sources.py",
    ("DatabaseConfig", "max_tables"): "config/sources.py",
    ("TableConfig", "target"): "config/sources.py",
    ("TableConfig", "partitions_regex"): "config/sources.py",
    ("TableConfig", "route"): "config/sources.py",
    ("RouteConfig", "by"): "config/model.py",
    ("RouteConfig", "to"): "config/sources.py",
    ("RouteConfig", "allow"): "config/model.py",
    ("RouteConfig", "rest"): "config/model.py",
    ("TableConfig", "excepted"): "config/patterns/expansion.py",
    ("LakeConfig", "namespace"): "config/sources.py",
    ("SparkConfig", "allow_insecure"): "config/check.py",
    ("CopyConfig", "servers"): "config/model.py",
    ("PipelineConfig", "copy_rows_per_second"): "config/model.py",
}


#: What a section is called where it is read: `self._config.interval`, `spec.config.filter`, `pipeline.workers`.
SECTIONS = {"config", "limits", *reference.SECTIONS}


def reads(file: Path, of: set[str] | None = None) -> set[str]:
    """The attributes that a module reads, of objects with these names alone."""
    found = set()
    for node in nodes(file):
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


@pytest.mark.parametrize(
    ("limits", "at", "is_open"),
    [
        ({}, "2026-11-27T12:00Z", True),
        ({"hours": "22:00-06:00"}, "2026-11-27T21:59Z", False),
        ({"hours": "22:00-06:00"}, "2026-11-27T22:00Z", True),
        ({"hours": "22:00-06:00"}, "2026-11-28T05:59Z", True),
        ({"hours": "22:00-06:00"}, "2026-11-28T06:00Z", False),
        ({"hours": "1:00-2:30"}, "2026-11-28T02:29Z", True),
        ({"hours": "1:00-2:30"}, "2026-11-28T02:30Z", False),
        ({"hours": "22:00-06:00", "time_zone": "Europe/Berlin"}, "2026-11-27T21:00Z", True),
        ({"hours": "22:00-06:00", "time_zone": "Europe/Berlin"}, "2026-07-27T20:00Z", True),
        ({"hours": "22:00-06:00", "time_zone": "Europe/Berlin"}, "2026-07-28T04:00Z", False),
        ({"hours": "22:00-06:00", "days": ["fri"]}, "2026-11-27T22:00Z", True),
        ({"hours": "22:00-06:00", "days": ["fri"]}, "2026-11-28T05:00Z", True),
        ({"hours": "22:00-06:00", "days": ["fri"]}, "2026-11-27T05:00Z", False),
        ({"hours": "08:00-20:00", "days": ["sat", "sun"]}, "2026-11-27T12:00Z", False),
        ({"hours": "08:00-20:00", "days": ["sat", "sun"]}, "2026-11-29T12:00Z", True),
    ],
)  # fmt: skip
def test_hours_are_of_a_time_zone_and_of_the_day_on_which_they_begin(
    limits: dict[str, object], at: str, is_open: bool
) -> None:
    now = datetime.datetime.fromisoformat(at.replace("Z", ":00+00:00")).timestamp()
    assert CopyLimits(**limits).is_open(now) is is_open  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("limits", "opens_at"),
    [
        ({}, None),
        ({"hours": "22:00-06:00"}, "2026-10-24T22:00:00+00:00"),
        ({"hours": "22:00-06:00", "time_zone": "Europe/Berlin"}, "2026-10-24T20:00:00+00:00"),
        ({"hours": "03:00-06:00", "time_zone": "Europe/Berlin"}, "2026-10-25T02:00:00+00:00"),  # an hour later then
        ({"hours": "11:00-13:00"}, "2026-10-25T11:00:00+00:00"),
        ({"hours": "11:00-13:00", "days": ["sat"]}, "2026-10-31T11:00:00+00:00"),
        ({"hours": "22:00-06:00", "days": ["fri"]}, "2026-10-30T22:00:00+00:00"),
    ],
)  # fmt: skip
def test_the_next_hours_are_found(limits: dict[str, object], opens_at: str | None) -> None:
    """From a Saturday noon on, the night before the clocks are set back."""
    now = datetime.datetime.fromisoformat("2026-10-24T12:00:00+00:00").timestamp()
    expected = None if opens_at is None else datetime.datetime.fromisoformat(opens_at).timestamp()
    assert CopyLimits(**limits).opens_at(now) == expected  # type: ignore[arg-type]


def test_a_server_has_limits_of_its_own_and_those_of_all_where_it_says_nothing() -> None:
    copy = CopyConfig(
        rows_per_second=1000, hours="22:00-06:00",
        servers={"db1:5432": CopyLimits(hours=None, sessions=1), "a:5432, b:5432": CopyLimits(rows_per_second=5)},
    )  # fmt: skip
    assert (copy.of("c:5432").rows_per_second, copy.of("c:5432").hours) == (1000, "22:00-06:00")
    assert copy.of("db1:5432") == CopyLimits(rows_per_second=1000, sessions=1)
    assert copy.of("db1:5433").sessions is None
    assert [copy.of(host).rows_per_second for host in ("a:5432,b:5432", "b:5432")] == [5, 5]


def test_every_limit_that_a_map_may_have_is_that_of_a_server() -> None:
    said = {
        "rows_per_second": 5, "sessions": 2, "hours": "22:00-06:00", "time_zone": "Europe/Berlin", "days": ["fri"],
        "max_snapshot_age": "90m", "from": "postgresql://standby",
    }  # fmt: skip
    assert said.keys() == {field.alias or name for name, field in CopyLimits.model_fields.items()}
    limits = CopyLimits.model_validate(said)
    assert limits.max_snapshot_age == 5400.0
    config = Config.model_validate({"databases": [], "copy": said | {"servers": {"a:1": said, "b:1": {}}}})
    assert [config.copy_limits(server) for server in ("a:1", "b:1", "c:1")] == [limits] * 3


def test_a_standby_is_of_all_servers_but_those_that_say_otherwise() -> None:
    standby, other = SecretUrl("postgresql://standby"), SecretUrl("postgresql://x:geheim@other")
    copy = CopyConfig.model_validate(
        {
            "from": standby,
            "servers": {"db1:5432": {"from": None}, "db2:5432": {"from": other}, "db3:1": {"sessions": 1}},
        }
    )
    servers = ("db1:5432", "db2:5432", "db3:1", "db4:1")
    assert [copy.of(server).copied_from for server in servers] == [None, other, standby, standby]
    assert copy.standbys == [standby, other]
    assert "geheim" not in f"{copy!r} {copy.model_dump_json()}"


def test_copies_are_limited_by_the_section_or_else_by_the_pipeline() -> None:
    pipeline = PipelineConfig(copy_rows_per_second=5)
    config = Config(databases=(), pipeline=pipeline, copy=CopyConfig(servers={"a:1": CopyLimits(rows_per_second=7)}))
    assert [config.copy_limits(server).rows_per_second for server in ("a:1", "b:1")] == [7, 5]
