"""What a catalog's rows say of a table; the queries are tried on servers."""

from __future__ import annotations

import contextlib
from collections import namedtuple
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.errors import SourceError
from kuvasz.model import PgType, ReplicaIdentity, TableName
from kuvasz.source.catalog import introspect, type_facts
from kuvasz.source.catalog.introspect import ServerFacts
from kuvasz.source.catalog.table import SourceTable, TableKind

INT8, TEXT = 20, 25


def named(schema: str = "public", name: str = "items", oid: int = 1, **facts: Any) -> SimpleNamespace:
    """A row of pg_class."""
    found = {
        "oid": oid, "schema": schema, "name": name, "relkind": "r", "persistence": "p", "identity": "d",
        "is_partition": False, "tuples": 10.0, "has_policies": False,
        "page_bytes": 8192, "file": 50 + oid, "attributes": 2, "dropped": [], "is_owned": True, "can_select": True,
        "ancestors": None, "children": None, "may_have_children": False, "root": 0,
    }  # fmt: skip
    return SimpleNamespace(**(found | facts))


def column(name: str, attnum: int, relation: int = 1, **facts: Any) -> SimpleNamespace:
    found = {
        "relation": relation, "name": name, "attnum": attnum, "type": TEXT, "typmod": -1, "is_not_null": False,
        "is_generated": False, "is_stored": False, "is_grid": False, "has_own_collation": False,
        "has_default": False, "version": 1, "missing": None, "digest": None,
    }  # fmt: skip
    return SimpleNamespace(**(found | facts))


def index(*columns: str, relation: int = 1, **facts: Any) -> SimpleNamespace:
    found = {
        "relation": relation, "name": "items_pkey", "is_primary": True, "is_identity": False, "is_immediate": True,
        "is_valid": True, "is_partial": False, "index": 70, "file": 71, "constraint_oid": 72,
        "columns": list(columns), "is_not_null": True, "has_generated": False,
    }  # fmt: skip
    return SimpleNamespace(**(found | facts))


class Server:
    """Rows of the catalog by query."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.version = 180000
        self.tables = [named()]
        self.leaves: list[SimpleNamespace] = []
        self.columns = [column("id", 1, type=INT8, is_not_null=True), column("body", 2)]
        self.indexes = [index("id")]
        self.lists: list[SimpleNamespace] = []
        self.types = [self.type(INT8, "int8"), self.type(TEXT, "text")]
        self.settings: dict[str, Any] = {}
        monkeypatch.setattr(introspect, "_rows", self._rows)
        monkeypatch.setattr(type_facts, "load", lambda *_: {})

    @property
    def info(self) -> SimpleNamespace:
        return SimpleNamespace(server_version=self.version)

    @staticmethod
    def type(oid: int, name: str, **facts: Any) -> SimpleNamespace:
        found = {"schema": "pg_catalog", "category": "b", "element": None, "base": None, "base_typmod": -1,
                 "delimiter": ","}  # fmt: skip
        return SimpleNamespace(oid=oid, name=name, **(found | facts))

    def _rows(self, _: object, __: str, query: str, *parameters: Any) -> list[Any]:
        known = {
            introspect._RELATIONS: self.tables, introspect._LEAVES: self.leaves, introspect._COLUMNS: self.columns,
            introspect._INDEXES: self.indexes, introspect._TYPES: self.types, introspect._RELATIVES: self.tables,
        }  # fmt: skip
        if query == introspect._SERVER:
            return [SimpleNamespace(_asdict=lambda: dict(self.settings))]
        return known.get(query, self.lists)

    def load(self, publications: Any = ()) -> SourceTable:
        connection: Any = self
        (found,) = introspect.load_relations(connection, [], publications).values()
        return found


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    return Server(monkeypatch)


def test_a_table_is_what_its_rows_say(server: Server) -> None:
    found = server.load()
    assert (found.table, found.kind, found.relation.key) == (
        TableName(schema="public", name="items"),
        TableKind.TABLE,
        ("id",),
    )
    assert found.row_estimate == 10
    assert (found.pages, found.toast_bytes, found.bytes) == (None, None, None), "that takes a lock"
    assert [one.is_nullable for one in found.relation.columns] == [False, True]
    assert (found.relation.file, found.relation.uniqueness) == (51, (72, 70, 71))
    assert (found.why_unsupported, found.is_logged, found.can_update) == ("", True, True)


def test_columns_that_are_alike_are_one_object_whatever_their_servers_number_them_by(server: Server) -> None:
    one = server.load().relation
    server.columns = [column("id", 1, type=INT8, is_not_null=True), column("body", 3, version=2)]
    server.tables[0].attributes, server.tables[0].oid = 3, 1
    other = server.load().relation
    server.columns = [column("id", 1, type=INT8, is_not_null=True, version=7), column("body", 2, version=9)]
    server.tables[0].attributes = 2
    again = server.load().relation
    assert one.columns is again.columns
    assert [tuple(map(of.version_of, of.columns)) for of in (one, other, again)] == [(1, 1), (1, 2), (7, 9)]
    assert (other.versions, one == again) == ((1, 0, 2), False)


def test_a_table_that_was_never_analysed_has_no_estimate(server: Server) -> None:
    server.tables[0].tuples = -1.0
    assert server.load().row_estimate is None


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ({"relkind": "v"}, "it is a view"),
        ({"relkind": "f"}, "it is a foreign table"),
        ({"persistence": "u"}, "it is unlogged or temporary, so its changes are not in the write-ahead log"),
        ({"schema": "pg_catalog"}, "it is a system catalog"),
    ],
)
def test_what_cannot_be_replicated_says_why_and_nothing_of_keys(server: Server, facts: dict, told: str) -> None:
    server.tables = [named(**facts)]
    server.indexes = []
    found = server.load()
    assert (found.why_unsupported, found.why_no_key) == (told, "")


def test_a_table_without_a_key_says_what_mends_it(server: Server) -> None:
    server.indexes = []
    found = server.load()
    assert found.relation.key == ()
    assert found.why_no_key
    assert not found.can_update


def test_a_generated_column_is_not_sent_unless_the_publication_says_so(server: Server) -> None:
    server.columns.append(column("upper", 3, is_generated=True, is_stored=True))
    server.columns.append(column("virtual", 4, is_generated=True))
    found = server.load(["p"])
    assert [one.name for one in found.relation.columns] == ["id", "body"]
    assert (found.generated, found.relation.sent) == (("upper", "virtual"), None)
    server.lists = [SimpleNamespace(relation=1, version=5, columns=None, has_generated=True, row_filter="")]
    assert server.load(["p"]).relation.sent == (1, 2, 3)
    server.lists = [SimpleNamespace(relation=1, version=9, columns=[2, 1], has_generated=False, row_filter="")]
    found = server.load(["p"])
    assert (found.relation.sent, found.relation.list_version) == ((1, 2), 9)


def test_servers_that_know_no_column_lists_are_not_asked_for_them(server: Server) -> None:
    server.lists = [SimpleNamespace(relation=1, version=9, columns=[1], has_generated=False, row_filter="")]
    server.version = 140011
    assert server.load(["p"]).relation.sent is None
    server.version = 150000
    assert server.load([]).relation.sent is None, "nor is anybody where no publication is named"
    assert server.load(["p"]).relation.sent == (1,)


class Partitioned(Server):
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch)
        self.tables = [named(relkind="p", main_bytes=0, tuples=0.0)]
        self.leaves = [named(name=f"items_{oid}", oid=oid, root=1, is_partition=True) for oid in (2, 3)]
        self.indexes = [index("id"), *(index("id", relation=oid) for oid in (2, 3))]


@pytest.fixture
def partitioned(monkeypatch: pytest.MonkeyPatch) -> Partitioned:
    return Partitioned(monkeypatch)


def test_a_partitioned_table_is_all_of_its_partitions(partitioned: Partitioned) -> None:
    found = partitioned.load()
    assert (found.kind, found.row_estimate, found.relation.file) == (TableKind.PARTITIONED, 20, 0)
    assert [leaf.table.name for leaf in found.leaves] == ["items_2", "items_3"]
    files = found.relation.leaf_files
    partitioned.leaves[0].file = 99
    assert partitioned.load().relation.leaf_files != files, "one was written anew"


def test_a_partition_that_is_told_otherwise_keeps_the_table_from_its_key(partitioned: Partitioned) -> None:
    partitioned.leaves[1].identity = ReplicaIdentity.NOTHING.value
    found = partitioned.load()
    assert "the replica identity of its partitions public.items_3 is not that of the table" in found.why_no_key
    assert "items_3" in found.mend
    assert not found.can_update


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ({"persistence": "u"}, "its partitions public.items_3 are unlogged"),
        ({"relkind": "f"}, "its partitions public.items_3 are foreign tables"),
    ],
)
def test_a_partition_that_writes_no_wal_is_told(partitioned: Partitioned, facts: dict, told: str) -> None:
    vars(partitioned.leaves[1]).update(facts)
    found = partitioned.load()
    assert found.why_unsupported.startswith(told)
    assert found.is_logged == ("persistence" not in facts)


def test_what_may_not_be_read_is_told_partition_by_partition(partitioned: Partitioned) -> None:
    partitioned.leaves[0].can_select = False
    found = partitioned.load()
    assert (found.can_select, [one.name for one in found.unreadable]) == (False, ["items_2"])


def test_a_partition_knows_what_it_is_one_of(server: Server) -> None:
    server.tables = [named(is_partition=True, ancestors=[["9", "public", "root"]])]
    found = server.load()
    assert (found.kind, found.ancestors[0].oid, found.ancestors[0].table.name) == (TableKind.LEAF, 9, "root")


def test_types_that_come_with_every_server_are_not_asked_for(server: Server) -> None:
    server.types = [server.type(23, "what a server says of it")]
    connection: Any = server
    found = introspect.load_types(connection, [1007])
    assert {oid: one.name for oid, one in found.items()} == {1007: "_int4", 23: "int4"}


def test_types_are_resolved_down_to_what_they_rest_on(server: Server) -> None:
    server.types = [
        server.type(TEXT, "text"), server.type(1009, "_text", element=TEXT),
        server.type(90, "code", category="d", base=1009, base_typmod=7), server.type(91, "lost", element=5555),
    ]  # fmt: skip
    connection: Any = server
    found = introspect.load_types(connection, [90, 91])
    assert found[90].base == PgType(oid=1009, name="_text", schema="pg_catalog", category="b",
                                    element=found[TEXT], base_typmod=-1)  # fmt: skip
    assert (found[90].base_typmod, found[91].element) == (7, None)


@pytest.mark.parametrize(("keep_bytes", "expected"), [(-1, None), (0, 0), (3 << 20, 3 << 20)])
def test_a_servers_settings_are_in_bytes(server: Server, keep_bytes: int, expected: int | None) -> None:
    server.settings = {
        "version": 180001, "version_text": "18.1", "system_identifier": 7, "timeline": 1, "wal_level": "logical",
        "max_slots": 10, "used_slots": 1, "max_senders": 10, "used_senders": 1, "keep_bytes": keep_bytes,
        "wal_end": "0/7", "is_in_recovery": False, "encoding": "UTF8", "database": "shop", "role": "kuvasz",
        "started_us": 5,
    }  # fmt: skip
    connection: Any = server
    found = introspect.server(connection)
    assert isinstance(found, ServerFacts)
    assert (found.max_slot_wal_keep_bytes, found.wal_end, found.major) == (expected, 7, 18)


class Answer:
    """A connection that answers with one row."""

    def __init__(self, **row: Any) -> None:
        self.info = SimpleNamespace(user="kz", host="eu", port=5432, dbname="shop", server_version=180000)
        self._row = namedtuple("Row", row)(**row)

    @contextlib.contextmanager
    def cursor(self, **_: object) -> Iterator[Any]:
        yield SimpleNamespace(execute=lambda *_: SimpleNamespace(fetchall=lambda: [self._row]))


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"schema": "s" * 1025, "name": "t"}, "schema of 1,025 characters"),
        ({"schema": "s", "name": "t" * 1025}, "name of 1,025 characters"),
        ({"schema": "s", "name": "t", "missing": "m" * 65537}, "missing of 65,537 characters"),
    ],
)
def test_texts_that_no_catalog_has_are_refused(row: dict[str, Any], told: str) -> None:
    """They would be in the metadata of tables that others fill, too."""
    answer: Any = Answer(**row)
    with pytest.raises(SourceError, match=rf"kz@eu:5432/shop: cannot list the tables: its catalog has a {told}"):
        introspect.list_tables(answer)
    fitting: Any = Answer(schema="s" * 1024, name="t" * 1024, missing="m" * 65536)
    assert len(introspect.list_tables(fitting)) == 1


def test_a_system_identifier_is_a_number(server: Server) -> None:
    server.settings["system_identifier"] = "7" * 1000
    answer: Any = Answer()
    with pytest.raises(SourceError, match="its system identifier is no number"):
        introspect.server(answer)
