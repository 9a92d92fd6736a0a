from __future__ import annotations

import psycopg
import pytest

from kuvasz.model import LONG, ReplicaIdentity, TableName
from kuvasz.source import conninfo
from kuvasz.source.catalog import fingerprint, introspect, sizes
from kuvasz.source.catalog.table import TableKind
from tests.support.postgres import needs

pytestmark = pytest.mark.postgres


@pytest.fixture
def connection(source):
    with conninfo.connect(source.url) as opened:
        opened.execute("SET search_path = public")  # the tests' own statements name no schema
        yield opened


def load(connection, name, schema="public"):
    return introspect.load_relation(connection, TableName(schema=schema, name=name))


def test_columns_in_the_order_of_the_wire(connection):
    connection.execute("""
        CREATE TYPE mood AS ENUM ('sad'); CREATE TYPE pair AS (x int, y text);
        CREATE DOMAIN price AS numeric(10,2) CHECK (VALUE > 0); CREATE DOMAIN net AS price;
        CREATE TABLE "Mixed Case.dot" (gone int, id int, "Name x" varchar(20) NOT NULL, n net, m mood[], p pair,
            b box[], v int2vector, d int GENERATED ALWAYS AS (id + 1) STORED, PRIMARY KEY ("Name x", id));
        ALTER TABLE "Mixed Case.dot" DROP COLUMN gone""")
    table = load(connection, "Mixed Case.dot")
    columns = {column.name: column for column in table.relation.columns}
    assert list(columns) == ["id", "Name x", "n", "m", "p", "b", "v"]
    assert [column.attnum for column in columns.values()] == [2, 3, 4, 5, 6, 7, 8]
    assert table.generated == ("d",)
    assert table.relation.key == ("id", "Name x")
    assert table.primary_key == ("Name x", "id")
    assert columns["Name x"].typmod == 24
    assert not columns["id"].is_nullable
    assert columns["n"].is_nullable
    net = columns["n"].pg_type
    assert (net.name, net.category, net.base.name, net.base.base.name) == ("net", "d", "price", "numeric")
    assert net.base.base_typmod == (10 << 16 | 2) + 4
    assert (columns["m"].pg_type.element.name, columns["m"].pg_type.element.category) == ("mood", "e")
    assert columns["m"].pg_type.element.schema == "public"
    assert columns["p"].pg_type.category == "c"
    assert columns["b"].pg_type.delimiter == ";"
    assert columns["v"].pg_type.element is None  # prints as "1 2", not as an array


@pytest.mark.parametrize(
    ("setup", "identity", "key", "can_update"),
    [
        ("CREATE TABLE t (a int PRIMARY KEY, b int)", "d", ("a",), True),
        ("CREATE TABLE t (a int, b int)", "d", (), False),
        ("CREATE TABLE t (a int PRIMARY KEY, b int); ALTER TABLE t REPLICA IDENTITY FULL", "f", ("a",), True),
        ("CREATE TABLE t (a int, b int); ALTER TABLE t REPLICA IDENTITY FULL", "f", (), True),
        ("CREATE TABLE t (a int PRIMARY KEY, b int); ALTER TABLE t REPLICA IDENTITY NOTHING", "n", (), False),
        (
            "CREATE TABLE t (a int PRIMARY KEY, b int NOT NULL, c int NOT NULL, UNIQUE (c, b));"
            "ALTER TABLE t REPLICA IDENTITY USING INDEX t_c_b_key", "i", ("b", "c"), True,
        ),
        (
            "CREATE TABLE t (a int PRIMARY KEY, b int NOT NULL); CREATE UNIQUE INDEX u ON t (b);"
            "ALTER TABLE t REPLICA IDENTITY USING INDEX u; DROP INDEX u", "i", (), False,
        ),
        ("CREATE TABLE t (a int PRIMARY KEY DEFERRABLE, b int)", "d", (), False),
        (
            "CREATE TABLE t (a int NOT NULL, b int, PRIMARY KEY (a) INCLUDE (b))", "d", ("a",), True,
        ),
    ],
)  # fmt: skip
def test_the_effective_key(connection, setup, identity, key, can_update):
    connection.execute(setup)
    table = load(connection, "t")
    assert table.relation.identity is ReplicaIdentity(identity)
    assert table.relation.key == key
    assert table.can_update is can_update
    assert bool(table.why_no_key) is (not key)
    assert table.is_whole_row is (identity == "f" and not key)


@pytest.mark.parametrize("kind", ["STORED", "VIRTUAL"])
@pytest.mark.parametrize("sends", ["", "none", "stored"])
@pytest.mark.parametrize("parted", [False, True])
def test_what_is_said_of_generated_columns_in_an_identity_is_what_the_server_does(connection, kind, sends, parted):
    """From version 18 on it refuses UPDATE and DELETE where REPLICA IDENTITY FULL has such as are not sent."""
    is_new = connection.info.server_version >= 180000
    if not is_new and (kind == "VIRTUAL" or sends):
        pytest.skip("not before PostgreSQL 18")
    by = "PARTITION BY LIST (id)" if parted else ""
    connection.execute(f"CREATE TABLE t (id int PRIMARY KEY, n int, g int GENERATED ALWAYS AS (n) {kind}) {by}")
    if parted:
        connection.execute("CREATE TABLE p PARTITION OF t DEFAULT")
    connection.execute("INSERT INTO t VALUES (1, 1)")
    connection.execute(f"ALTER TABLE {'p' if parted else 't'} REPLICA IDENTITY FULL")
    more = f", publish_generated_columns = {sends}" if sends else ""
    connection.execute(f"CREATE PUBLICATION ours FOR TABLE t WITH (publish_via_partition_root = true{more})")
    name = TableName(schema="public", name="t")

    def told():
        return introspect.load_relation(connection, name, ["ours", "ours_ins"])

    try:
        connection.execute("UPDATE t SET n = 2")
    except psycopg.Error:
        assert is_new
        assert not told().can_update
        assert told().relation.key == ()
        connection.execute(told().mend)
        connection.execute("UPDATE t SET n = 3")
    assert told().can_update
    assert told().relation.key == ("id",)


@pytest.mark.parametrize(
    ("setup", "key"),
    [
        ("CREATE TABLE t (a int PRIMARY KEY); ALTER TABLE t REPLICA IDENTITY NOTHING", ("a",)),
        ('CREATE TABLE t (a int NOT NULL, b int); CREATE UNIQUE INDEX "U x" ON t (a)', ("a",)),
        ("CREATE TABLE t (a int, b int); CREATE UNIQUE INDEX u ON t (a, b)", ("a", "b")),
        ("CREATE TABLE t (a int PRIMARY KEY DEFERRABLE)", ()),
        ("CREATE TABLE t (a int NOT NULL); CREATE UNIQUE INDEX u ON t (a) WHERE a > 0", ()),
    ],
)
def test_the_proposed_sql_makes_the_table_fit_to_be_published(connection, setup, key):
    connection.execute(setup)
    connection.execute(load(connection, "t").mend)
    mended = load(connection, "t")
    assert (mended.can_update, mended.relation.key) == (True, key)


def test_a_column_that_may_have_nulls_from_before_is_of_no_key(source, connection):
    needs(source.server, 18, "NOT NULL of rows to come alone")
    connection.execute("""
        CREATE TABLE t (a int, b int); INSERT INTO t VALUES (NULL, 1), (NULL, 2);
        CREATE UNIQUE INDEX u ON t (a); ALTER TABLE t ADD CONSTRAINT c NOT NULL a NOT VALID;
        ALTER TABLE t REPLICA IDENTITY USING INDEX u""")
    table = load(connection, "t")
    assert (table.relation.key, table.unique) == ((), ())
    assert "its replica identity u is not a valid, immediate unique index over NOT NULL columns" in table.why_no_key
    connection.execute("DELETE FROM t")
    connection.execute(table.mend)
    assert load(connection, "t").relation.key == ("a",)


_KEYED = "CREATE TABLE t (a varchar(9) PRIMARY KEY, b int NOT NULL, c int NOT NULL UNIQUE)"
_BY_INDEX = f"{_KEYED}; CREATE UNIQUE INDEX u ON t (b); ALTER TABLE t REPLICA IDENTITY USING INDEX u"

_PARTED = "CREATE TABLE t (a int PRIMARY KEY) PARTITION BY RANGE (a); CREATE TABLE p PARTITION OF t DEFAULT"


def test_rows_of_a_partitioned_table_show_what_its_partitions_say_where_they_agree(connection):
    def missing() -> dict:
        return {column.name: column.missing for column in load(connection, "t").relation.columns}

    connection.execute(_PARTED)
    connection.execute("ALTER TABLE t ADD b int DEFAULT 7, ADD c text DEFAULT 'x' NOT NULL, ADD d text")
    assert missing() == {"a": None, "b": "7", "c": "x", "d": None}
    connection.execute("""
        CREATE TABLE q (a int NOT NULL, c text NOT NULL, d text); ALTER TABLE q ADD b int DEFAULT 8;
        ALTER TABLE t DETACH PARTITION p; ALTER TABLE t ATTACH PARTITION p FOR VALUES FROM (0) TO (10);
        ALTER TABLE t ATTACH PARTITION q FOR VALUES FROM (10) TO (20)""")
    assert missing() == {"a": None, "b": None, "c": "x", "d": None}
    connection.execute("DROP TABLE p")
    assert missing() == {"a": None, "b": "8", "c": None, "d": None}


def test_what_a_look_reads_is_bounded_whatever_is_in_the_catalog(connection):
    """PostgreSQL compresses what rows of before show: a page of a catalog may hold a hundred times as much."""
    connection.execute("""
        CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1);
        CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id);
        CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10); INSERT INTO p VALUES (1)""")
    for number, letter in enumerate("xyx"):
        connection.execute(f"ALTER TABLE t ADD c{number} text DEFAULT repeat('{letter}', 300000)")
        connection.execute(f"ALTER TABLE p ADD c{number} text DEFAULT repeat('{letter}', 300000)")
    connection.execute(f"ALTER TABLE t ADD short text DEFAULT '{'s' * 8192}'")
    for name in "tp":
        found = {column.name: column.missing for column in load(connection, name).relation.columns}
        long = [found[f"c{number}"] for number in range(3)]
        assert all(one.startswith(LONG) and len(one) < 30 for one in long)
        assert long[0] == long[2] != long[1]
    assert load(connection, "t").relation.columns[-1].missing == "s" * 8192
    connection.execute("""
        DO $do$ BEGIN EXECUTE 'CREATE TYPE few AS ENUM (''a'', ''b'')';
            EXECUTE (SELECT format('CREATE TYPE many AS ENUM (%s)', string_agg(quote_literal(i), ', '))
                FROM generate_series(1, 3000) AS i);
        END $do$;
        CREATE TABLE e (few few, many many)""")

    def facts():
        return {column.name: column.facts for column in load(connection, "e").relation.columns}

    before = facts()
    assert (len(before["few"]), len(before["many"])) == (3, 1)
    connection.execute("ALTER TYPE few ADD VALUE 'c'")
    connection.execute("ALTER TYPE many ADD VALUE 'c'")
    assert set(before["few"]) < set(facts()["few"])
    assert facts()["many"] != before["many"]


@pytest.mark.parametrize(
    ("setup", "change", "has_lapsed"),
    [
        (_KEYED, "REINDEX TABLE t", False),
        (_KEYED, "REINDEX TABLE CONCURRENTLY t", False),
        (_KEYED, "CLUSTER t USING t_pkey", False),
        (_KEYED, "VACUUM FULL t", False),
        (_KEYED, "TRUNCATE t", False),
        (_KEYED, "ALTER TABLE t SET UNLOGGED, ALTER b TYPE bigint; ALTER TABLE t SET LOGGED", False),
        (_KEYED, "ALTER TABLE t RENAME a TO d; ALTER TABLE t RENAME CONSTRAINT t_pkey TO p", False),
        (_KEYED, "ALTER TABLE t ALTER a TYPE varchar(20); ALTER TABLE t ALTER a TYPE text", False),
        (_KEYED, "ALTER TABLE t REPLICA IDENTITY FULL", False),
        (_KEYED, "ALTER TABLE t ALTER a TYPE int USING a::int", True),
        (_KEYED, "ALTER TABLE t DROP CONSTRAINT t_pkey; ALTER TABLE t ADD PRIMARY KEY (a)", True),
        (_KEYED, "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (a)", True),
        (_BY_INDEX, "REINDEX TABLE t", False),
        (_BY_INDEX, "VACUUM FULL t", False),
        (_BY_INDEX, "ALTER TABLE t DROP CONSTRAINT t_pkey; ALTER TABLE t ADD PRIMARY KEY USING INDEX u", False),
        (_BY_INDEX, "DROP INDEX u; CREATE UNIQUE INDEX u ON t (b); ALTER TABLE t REPLICA IDENTITY USING INDEX u",
         True),
        (_PARTED, "REINDEX TABLE p", False),
        (_PARTED, "ALTER TABLE t DROP CONSTRAINT t_pkey; ALTER TABLE t ADD PRIMARY KEY (a)", True),
    ],
)  # fmt: skip
def test_a_key_that_was_made_again_is_told_from_one_that_was_built_again(connection, setup, change, has_lapsed):
    connection.execute(setup)
    before = load(connection, "t").relation
    connection.execute(change)
    now = load(connection, "t").relation
    assert before.uniqueness.index_oid
    assert before.uniqueness.lapsed(now.uniqueness) is has_lapsed
    assert not now.uniqueness.lapsed(load(connection, "t").relation.uniqueness)


def test_a_partitioned_table_with_its_leaves(connection):
    connection.execute("""
        CREATE TABLE p (id int, v text, PRIMARY KEY (id)) PARTITION BY RANGE (id);
        CREATE TABLE "p 1" PARTITION OF p FOR VALUES FROM (0) TO (10);
        CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (30) PARTITION BY RANGE (id);
        CREATE TABLE p3 (v text, x int, id int NOT NULL); ALTER TABLE p3 DROP COLUMN x;
        ALTER TABLE p2 ATTACH PARTITION p3 FOR VALUES FROM (10) TO (20);
        INSERT INTO p SELECT i, repeat('x', 100) FROM generate_series(0, 19) i; ANALYZE p""")
    table = load(connection, "p")
    assert table.kind is TableKind.PARTITIONED
    assert [leaf.table.name for leaf in table.leaves] == ["p 1", "p3"]
    assert (sizes.sized(connection, table).pages, table.row_estimate) == (2, 20)
    assert table.relation.key == ("id",)
    part = load(connection, "p3")
    assert (part.kind, [above.table.name for above in part.ancestors]) == (TableKind.LEAF, ["p2", "p"])
    connection.execute("ALTER TABLE p3 REPLICA IDENTITY NOTHING")
    odd = load(connection, "p")
    assert "public.p3" in odd.why_no_key
    assert not odd.can_update
    connection.execute(odd.mend)
    assert load(connection, "p").relation.key == ("id",)


def test_what_cannot_be_replicated_is_said(connection):
    connection.execute("CREATE VIEW v AS SELECT 1; CREATE UNLOGGED TABLE u (id int PRIMARY KEY)")
    assert load(connection, "v").why_unsupported == "it is a view"
    assert "unlogged" in load(connection, "u").why_unsupported
    assert load(connection, "nix") is None


def test_many_tables_take_as_many_queries_as_one(connection):
    for number in range(20):
        connection.execute(f"CREATE TABLE t{number} (id int PRIMARY KEY, a int[], p text)")
    names = [TableName(schema="public", name=f"t{number}") for number in range(20)]
    counted = []
    inner = connection.cursor

    def cursor(*arguments, **options):
        counted.append(1)
        return inner(*arguments, **options)

    connection.cursor = cursor
    introspect.load_relations(connection, names[:1])  # asks for types that no server was asked for before
    counted.clear()
    introspect.load_relations(connection, names[:1])
    once = len(counted)
    assert len(introspect.load_relations(connection, [*names, TableName(schema="s", name="nix")])) == 20
    assert len(counted) == 2 * once


@pytest.mark.parametrize(("statement", "is_kept"), [
    ("ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'", False), ("ALTER TYPE mood ADD VALUE 'great'", True),
    ("ALTER TYPE pair ADD ATTRIBUTE more text", False), ("ALTER TYPE pair DROP ATTRIBUTE n", False),
    ("ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'; ALTER TYPE mood RENAME VALUE 'blue' TO 'sad'", False),
    ("ALTER TYPE pair RENAME ATTRIBUTE n TO m", True), ("ALTER TYPE mood RENAME TO humour", True),
])  # fmt: skip
@pytest.mark.parametrize("column", ["mood", "mood[]", "feeling", "feelings", "pair", "pair[]", "wrapped", "row_of"])
def test_what_a_type_rests_on_is_known(connection, column, statement, is_kept):
    connection.execute("""
        CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE DOMAIN feeling AS mood;
        CREATE TYPE feelings AS RANGE (subtype = feeling); CREATE TYPE pair AS (n int, f feeling);
        CREATE TYPE wrapped AS (p pair[]); CREATE TABLE row_of (id int, p pair)""")
    connection.execute(f"CREATE TABLE t (id int PRIMARY KEY, c {column})")
    (before,) = [one.facts for one in load(connection, "t").relation.columns if one.name == "c"]
    connection.execute(statement)
    columns = {one.name: one.facts for one in load(connection, "t").relation.columns}
    assert before and columns["id"] == ()  # noqa: PT018 (one of them alone says nothing)
    is_touched = column not in {"mood", "mood[]", "feeling", "feelings"} or "TYPE mood" in statement
    assert (set(before) <= set(columns["c"])) == (is_kept or not is_touched)


def test_a_partition_that_is_not_logged_is_found(connection):
    connection.execute("""
        CREATE TABLE p (id int PRIMARY KEY) PARTITION BY LIST (id); CREATE TABLE p1 PARTITION OF p DEFAULT""")
    logged = load(connection, "p")
    assert logged.is_logged
    connection.execute("ALTER TABLE p1 SET UNLOGGED")
    table = load(connection, "p")
    assert not table.is_logged
    assert "public.p1 are unlogged" in table.why_unsupported
    connection.execute("ALTER TABLE p1 SET LOGGED")
    assert fingerprint.of(load(connection, "p")) != fingerprint.of(logged)


def test_a_fingerprint_is_that_of_the_table_not_of_its_rows(connection):
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, v int DEFAULT 3)")
    before = fingerprint.of(load(connection, "t"))
    connection.execute("INSERT INTO t SELECT i FROM generate_series(1, 10000) i; ANALYZE t")
    assert fingerprint.of(load(connection, "t")) == before
    connection.execute("ALTER TABLE t ALTER v SET DEFAULT 4")
    changed = fingerprint.of(load(connection, "t"))
    assert changed != before
    connection.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    assert fingerprint.of(load(connection, "t")) != changed


def test_sizes_count_toast(connection):
    connection.execute("""
        CREATE TABLE t (id int PRIMARY KEY, v text); ALTER TABLE t ALTER v SET STORAGE EXTERNAL;
        INSERT INTO t SELECT i, repeat('x', 100000) FROM generate_series(1, 10) i""")
    table = sizes.sized(connection, load(connection, "t"))
    assert table.pages == 1
    assert table.row_estimate is None
    assert table.toast_bytes > 1_000_000
    assert table.bytes == 8192 + table.toast_bytes


def test_list_tables(connection):
    connection.execute("""
        CREATE SCHEMA "B s"; CREATE TABLE "B s"."x.y" (id int); CREATE UNLOGGED TABLE u (id int);
        CREATE TABLE p (id int) PARTITION BY LIST (id); CREATE TABLE p1 PARTITION OF p DEFAULT""")
    assert [str(name) for name in introspect.list_tables(connection)] == ["B s.x.y", "public.p"]
    assert [str(name) for name in introspect.list_tables(connection, partitions=True)][-1] == "public.p1"


def test_server(source, connection):
    facts = introspect.server(connection)
    assert facts.major == source.server.version
    assert (facts.wal_level, facts.database, facts.encoding) == ("logical", source.name, "UTF8")
    assert (facts.timeline, facts.is_in_recovery, facts.max_slot_wal_keep_bytes) == (1, False, None)
    identified = connection.execute("SELECT system_identifier FROM pg_control_system()").fetchone()[0]
    assert facts.system_identifier == identified


def test_row_security_and_privileges_are_those_of_the_session(source, connection):
    connection.execute("""
        CREATE TABLE t (id int PRIMARY KEY, v int); ALTER TABLE t ENABLE ROW LEVEL SECURITY;
        CREATE TABLE cols (id int PRIMARY KEY, v int)""")
    role = f"reader_{source.name}_{source.server.version}"
    connection.execute(f"CREATE ROLE {role} LOGIN; GRANT SELECT ON t TO {role}; GRANT SELECT (id) ON cols TO {role}")
    try:
        with conninfo.connect(source.server.url(source.name, user=role)) as session:
            table, cols = load(session, "t"), load(session, "cols")
            assert (table.can_select, table.has_policies, table.is_owned) == (True, True, False)
            assert cols.unreadable == (TableName(schema="public", name="cols"),)
            connection.execute(f"GRANT SELECT (v) ON cols TO {role}")
            assert load(session, "cols").can_select
        assert not load(connection, "t").has_policies
    finally:
        connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_tables_that_inherit_and_are_no_partitions(connection):
    connection.execute("""
        CREATE TABLE parent (id int); CREATE TABLE other (n int); CREATE TABLE a () INHERITS (parent, other);
        CREATE TABLE b () INHERITS (a); CREATE TABLE c () INHERITS (parent);
        CREATE TABLE root (id int) PARTITION BY LIST (id); CREATE TABLE leaf PARTITION OF root DEFAULT""")
    found = {name: load(connection, name).children for name in ("parent", "other", "b", "root", "leaf")}
    assert {name: [one.name for one in children] for name, children in found.items()} == {
        "parent": ["a", "b", "c"], "other": ["a", "b"], "b": [], "root": [], "leaf": [],
    }  # fmt: skip


def test_what_keeps_two_rows_apart(connection):
    connection.execute("""
        CREATE TABLE t (id int PRIMARY KEY, n int NOT NULL, v int, UNIQUE (n) INCLUDE (v), UNIQUE (v),
            UNIQUE (id, n) DEFERRABLE);
        CREATE UNIQUE INDEX ON t (n) WHERE v > 0; CREATE UNIQUE INDEX ON t (abs(n))""")
    assert set(load(connection, "t").unique) == {("id",), ("n",)}
