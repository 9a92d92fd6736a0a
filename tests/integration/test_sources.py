"""`kuvasz source`: sources and tenants listed, added and dropped beside a running kuvasz, and without one."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from kuvasz import cli
from kuvasz.config import sources as config_sources
from kuvasz.config.load import load
from kuvasz.state.tables import State
from kuvasz.sync import watches
from tests.support.lake import LakeFolder, group
from tests.support.oracle import source_rows
from tests.support.postgres import Database, create_database, drop_database
from tests.support.served import ServedPipeline
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

MAP = """\
# the fleet
lake: {lake}
pipeline: {pipeline}
server: {{address: "127.0.0.1:0"}}
databases:
- database: shop
  urls:
  - {{url: "{first}", sid: eu}}  # the first
  tables:
    items:  # all of them
- database: crm
  urls: [{{url: "{first}", schemas: "tenant_(.+)"}}]
  tables: {{people: }}
"""


@pytest.fixture
def second(postgres16) -> Iterator[Database]:
    created = create_database(postgres16)
    yield created
    drop_database(created)


def slots(database: Database) -> list[tuple]:
    return database.execute("SELECT slot_name FROM pg_replication_slots WHERE database = current_database()")


class Fleet:
    """A map, whose file commands change; its first database has two tenants, too."""

    def __init__(self, folder: LakeFolder, first: Database, capsys: pytest.CaptureFixture[str]) -> None:
        folder.config(group({"eu": first}, {"items": None}))
        self._capsys = capsys
        self._folder = folder
        self.file = folder.folder / "map.yaml"
        lake, state = (json.dumps(json.loads(self.file.read_text())[part]) for part in ("lake", "pipeline"))
        self.text = MAP.format(lake=lake, pipeline=state, first=first.url)
        self.file.write_text(self.text)

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """Carry out a verb; return its exit code, and what it says."""
        try:
            cli.main([*arguments, "--config", str(self.file)])
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        return (code, *self._capsys.readouterr())

    def pipeline(self) -> ServedPipeline:
        loaded = load(self.file, {})
        made = ServedPipeline(loaded.config, self._folder)
        made.loaded = loaded
        return made

    def tenants(self) -> dict[str, dict[str, int]]:
        """Tenant -> state -> its tables."""
        (crm,) = json.loads(self("source", "list", "--database", "crm", "--json")[1])
        return {one["sid"]: one["states"] for one in crm["tenants"]}


@pytest.fixture
def kuvasz(
    database: Database,
    second: Database,
    lake_folder: LakeFolder,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Fleet:
    monkeypatch.setattr(watches, "_PARTITIONS_S", 0.1)
    for one in (database, second):
        one.execute("CREATE TABLE items (id int PRIMARY KEY, name text)")
        one.execute("INSERT INTO items VALUES (1, 'one')")
    for tenant in ("a", "b"):
        database.execute(f"CREATE SCHEMA tenant_{tenant}")
        database.execute(f"CREATE TABLE tenant_{tenant}.people (id int PRIMARY KEY)")
    return Fleet(lake_folder, database, capsys)


NEW = ("--database", "shop", "--sid", "us")


def test_a_source_comes_and_goes_while_the_others_stream(database: Database, second: Database, kuvasz: Fleet) -> None:
    with kuvasz.pipeline() as pipeline:
        pipeline.wait_state("shop_eu", "shop.items", State.STREAMING)
        epoch = pipeline.app.sync("shop_eu").reader.epoch
        code, _, err = kuvasz("source", "add", *NEW, "--url", "postgresql://localhost:1/x")
        assert (code, "shop_us cannot be replicated" in err, kuvasz.file.read_text()) == (2, True, kuvasz.text)
        code, out, err = kuvasz("source", "add", *NEW, "--url", second.url)
        assert (code, out.partition(";")[0]) == (0, "added: shop_us, 1 tables"), err
        pipeline.wait_state("shop_us", "shop.items", State.STREAMING)
        assert "# the first\n" in kuvasz.file.read_text()
        assert pipeline.app.sync("shop_eu").reader.epoch == epoch, "the others stream on"
        second.execute("INSERT INTO items VALUES (2, 'two')")
        pipeline.wait_applied(database, second)
        wait_until(lambda: kuvasz.tenants() == {sid: {"streaming": 1} for sid in "ab"}, "both tenants stream")
        assert kuvasz("source", "pause", "--database", "crm", "--sid", "a*")[0] == 0
        wait_until(lambda: kuvasz.tenants() == {"a": {"paused": 1}, "b": {"streaming": 1}}, "one is paused")
        code, _, err = kuvasz("source", "drop", "--sid", "us")
        assert (code, "add --yes" in err) == (2, True)
        code, out, err = kuvasz("source", "drop", "--sid", "us", "--drop-slot", "--yes")
        assert (code, out) == (0, "dropped from the map: shop_us\ntheir rows stay in shop.items\n"), err
        wait_until(lambda: slots(second) == [], "its slot is gone")
        assert kuvasz.file.read_text() == kuvasz.text, "nothing else of the map has changed"
        rows = [source_rows(one.url, "items", sid=sid) for one, sid in ((database, "eu"), (second, "us"))]
        pipeline.assert_equal("items", *rows, key=("sid", "id"))


def test_what_differs_within_a_group_is_shown(database: Database, second: Database, kuvasz: Fleet) -> None:
    assert kuvasz("source", "add", *NEW, "--url", second.url)[0] == 0
    assert kuvasz("source", "drift")[:2] == (0, "all sources of a group have the same tables\n")
    second.execute("ALTER TABLE items ADD COLUMN more int, ALTER COLUMN name TYPE varchar(7)")
    database.execute("DROP TABLE tenant_b.people")
    database.execute("CREATE SCHEMA tenant_c")
    database.execute("CREATE TABLE tenant_c.people (id bigint PRIMARY KEY)")
    code, out, _ = kuvasz("source", "drift", "--json")
    found = {(one["database"], one["sid"], one["what"]): (one["found"], one["usual"]) for one in json.loads(out)}
    assert (code, found) == (4, {
        ("shop", "us", "more"): ("int4", "no column"), ("shop", "us", "name"): ("varchar", "text"),
        ("crm", "c", "id"): ("int8, key", "int4, key"),
    })  # fmt: skip
    assert [one["sid"] for one in json.loads(kuvasz("source", "drift", "--sid", "c", "--json")[1])] == ["c"]


def test_without_one_that_runs_it_counts_from_the_next_start_on(second: Database, kuvasz: Fleet) -> None:
    assert kuvasz.tenants() == {"a": {}, "b": {}}, "the server is asked"
    code, out, _ = kuvasz("source", "show", "--sid", "b")
    assert (code, [line.split() for line in out.splitlines() if "b" in line.split()[:1]]) == (0, [["b", "1"]])
    assert kuvasz("source", "add", *NEW, "--url", second.url)[0] == 0
    assert [source.name for source in config_sources.resolve(load(kuvasz.file, {}).config)] == [
        "shop_eu", "shop_us", "crm",
    ]  # fmt: skip
    second.execute("SELECT pg_create_logical_replication_slot('kuvasz_shop_us', 'pgoutput')")
    assert kuvasz("source", "drop", "--sid", "us", "--keep-slot", "--yes")[0] == 0
    assert slots(second) == [("kuvasz_shop_us",)]
    assert kuvasz("source", "add", *NEW, "--url", second.url)[0] == 0
    code, out, _ = kuvasz("source", "drop", "--sid", "us", "--drop-slot", "--yes")
    assert (code, "shop_us: slot kuvasz_shop_us: dropped" in out, slots(second)) == (0, True, [])
