from __future__ import annotations

import contextlib
import dataclasses
import pickle
import random
import re
import struct
import threading

import psycopg
import pytest

from kuvasz.errors import SourceError, SourceRefused
from kuvasz.model import TableName
from kuvasz.source import conninfo, copy_out, slots, snapshot
from kuvasz.source.catalog import introspect, sizes
from kuvasz.sync.rules import copy_plan
from tests.support.waiting import wait_until

pytestmark = pytest.mark.postgres

SLOT_CHANGES = """
SELECT data FROM pg_logical_slot_get_binary_changes(
    %s, NULL, NULL, 'proto_version', '1', 'publication_names', 'p')
"""


@pytest.fixture
def connection(source):
    with conninfo.connect(source.url) as opened:
        opened.execute("SET search_path = public")  # the tests' own statements name no schema
        yield opened


@pytest.fixture
def exported(source):
    with slots.create(conninfo.replication_conninfo(source.url), f"kuvasz_{source.name}") as opened:
        yield opened


@pytest.fixture
def exported_after(source):
    """Exports the snapshot of a slot when it is called."""
    with contextlib.ExitStack() as stack:
        replication = conninfo.replication_conninfo(source.url)
        yield lambda: stack.enter_context(slots.create(replication, f"kuvasz_{source.name}", temporary=True))


def ranges(connection, exported, name="t", target_bytes=8192 * 8):
    table = sizes.sized(connection, introspect.load_relation(connection, TableName(schema="public", name=name)))
    pinned = exported.pinned(conninfo.conninfo(connection_url(connection)))
    return copy_plan.copy_ranges(
        table, conninfo=pinned, snapshot_name=exported.snapshot_name, target_bytes=target_bytes
    )


def connection_url(connection):
    info = connection.info
    return f"postgresql://{info.user}@{info.host}:{info.port}/{info.dbname}"


def copied(parts, chunk_bytes=8 << 20):
    """Rows as tuples of text or None."""
    rows = []
    for part in parts:
        for chunk in map(bytes, pickle.loads(pickle.dumps(part)).read(chunk_bytes)):
            assert chunk.endswith(b"\n")
            rows += [tuple(field(text) for text in line.split(b"\t")) for line in chunk.splitlines()]
    return rows


def field(text):
    if text == b"\\N":
        return None
    escapes = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
    return re.sub(rb"\\(.)", lambda match: escapes.get(match[1], match[1]), text, flags=re.DOTALL)


def streamed(connection, slot):
    """(operation, old key or row, new row) of every row message."""
    # The function reads what is flushed only, and the test servers commit without flushing.
    connection.execute("SET synchronous_commit = on")
    connection.execute("SELECT pg_logical_emit_message(true, 'flush', '')")
    for (data,) in connection.execute(SLOT_CHANGES, (slot,)):
        kind, at = data[:1], 5
        if kind not in b"IUD":
            continue
        old = new = None
        while at < len(data):
            tag, at = data[at : at + 1], at + 1
            row, at = tuple_at(data, at)
            old, new = (old, row) if tag == b"N" else (row, new)
        yield kind, old, new


def tuple_at(data, at):
    (count,) = struct.unpack_from("!h", data, at)
    at, row = at + 2, []
    for _ in range(count):
        kind, at = data[at : at + 1], at + 1
        if kind == b"t":
            (size,) = struct.unpack_from("!i", data, at)
            row.append(bytes(data[at + 4 : at + 4 + size]))
            at += 4 + size
        else:
            row.append(None)
    return tuple(row), at


class Writer(threading.Thread):
    """Commits transactions of several statements, on several sessions, until stopped."""

    def __init__(self, url, seed):
        super().__init__()
        self.url = url
        self.seed = seed
        self.stopped = threading.Event()
        self.commits = 0

    def run(self):
        chance = random.Random(self.seed)  # noqa: S311
        with psycopg.connect(self.url, autocommit=True) as session:
            while not self.stopped.is_set():
                with session.transaction():
                    for _ in range(chance.randrange(1, 6)):
                        key = self.seed * 1_000_000 + chance.randrange(2000)
                        statement = chance.choice([
                            "INSERT INTO t VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET v = excluded.v",
                            "UPDATE t SET v = v || '.' WHERE id = %s AND %s <> ''",
                            "UPDATE t SET id = id + 5000 WHERE id = %s AND %s <> '' AND NOT EXISTS"
                            f" (SELECT FROM t WHERE id = {key} + 5000)",
                            "DELETE FROM t WHERE id = %s AND %s <> ''",
                        ])  # fmt: skip
                        session.execute(statement, (key, f"v{chance.randrange(10**6)}"))
                self.commits += 1


def test_snapshot_and_stream_together_give_exactly_the_table(source, connection):
    connection.execute("""
        CREATE TABLE t (id int PRIMARY KEY, v text); CREATE PUBLICATION p FOR TABLE t;
        INSERT INTO t SELECT w * 1000000 + i, repeat('x', 100)
        FROM generate_series(1, 3) w, generate_series(0, 1999) i""")
    writers = [Writer(source.url, seed) for seed in (1, 2, 3)]
    for writer in writers:
        writer.start()
    slot = f"kuvasz_{source.name}"
    try:
        wait_until(lambda: all(writer.commits > 20 for writer in writers), "every writer writes")
        with slots.create(conninfo.replication_conninfo(source.url), slot) as exported:
            before = sum(writer.commits for writer in writers)
            parts = ranges(connection, exported)
            assert len(parts) > 3
            rows = copied(parts, chunk_bytes=4096)
            wait_until(lambda: sum(writer.commits for writer in writers) > before + 100, "they go on")
    finally:
        for writer in writers:
            writer.stopped.set()
        for writer in writers:
            writer.join()
    table = dict(rows)
    assert len(table) == len(rows)  # no row twice, in none of the ranges
    changes = 0
    for kind, old, new in streamed(connection, slot):
        changes += 1
        if kind == b"I":
            assert new[0] not in table  # or it would have been in the snapshot and the stream
            table[new[0]] = new[1]
        else:
            key = (old or new)[0]
            assert key in table
            del table[key]
            if new is not None:
                table[new[0]] = new[1]
    assert changes > 100
    assert table == {str(key).encode(): value.encode() for key, value in connection.execute("SELECT id, v FROM t")}


def test_copy_and_stream_print_a_value_alike(source, connection, exported):
    connection.execute(f"ALTER DATABASE {source.name} SET datestyle = 'SQL, DMY'")
    connection.execute(f"ALTER DATABASE {source.name} SET timezone = 'Asia/Tokyo'")
    connection.execute(f"ALTER DATABASE {source.name} SET bytea_output = 'escape'")
    slots.drop(connection, exported.slot)
    connection.execute("""
        CREATE TABLE t (id int PRIMARY KEY, b bool, n numeric, f float8, g float4, d date, ts timestamp,
            tz timestamptz, i interval, by bytea, tx text, j jsonb, a text[],
            gen int GENERATED ALWAYS AS (id * 2) STORED, r int4range, u uuid, c char(5));
        CREATE PUBLICATION p FOR TABLE t""")
    row = (
        "true, 1.50, 0.1::float8 + 0.2, 3.4e-38, '2024-02-29', '2024-02-29 01:02:03.000004',"
        " '2024-02-29 01:02+09',"
        " '1 mon -2 days 03:04', '\\x00ff5c', E'a\\tb\\\\n\\nc''\\r', '{\"k\": [1, null]}',"
        " ARRAY['a,b', NULL, E'q\"\\\\'], '[1,5)', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 'ab'"
    )
    columns = "id, b, n, f, g, d, ts, tz, i, by, tx, j, a, r, u, c"
    connection.execute(f"INSERT INTO t ({columns}) VALUES (1, {row})")
    with slots.create(conninfo.replication_conninfo(source.url), exported.slot) as fresh:
        connection.execute(f"INSERT INTO t ({columns}) VALUES (2, {row})")
        with psycopg.connect(source.url) as plain:  # sessions without our settings print otherwise
            assert plain.execute("SELECT d::text FROM t WHERE id = 1").fetchone() == ("29/02/2024",)
        (copy_row,) = copied(ranges(connection, fresh))
    with conninfo.connect(source.url) as session:
        ((_, _, stream_row),) = streamed(session, exported.slot)
    assert copy_row[0] == b"1"
    assert stream_row[0] == b"2"
    assert copy_row[1:] == stream_row[1:]
    assert copy_row[7] == b"2024-02-28 16:02:00+00"


def test_a_partitioned_table_is_copied_in_the_columns_order_of_its_root(source, connection):
    connection.execute("""
        CREATE TABLE "P q" (id int, v text, PRIMARY KEY (id)) PARTITION BY RANGE (id);
        CREATE TABLE "p.1" PARTITION OF "P q" FOR VALUES FROM (0) TO (500);
        CREATE TABLE p2 (v text, gone int, id int NOT NULL); ALTER TABLE p2 DROP COLUMN gone;
        ALTER TABLE "P q" ATTACH PARTITION p2 FOR VALUES FROM (500) TO (1000);
        INSERT INTO "P q" SELECT i, 'v' || i FROM generate_series(0, 999) i""")
    with slots.create(conninfo.replication_conninfo(source.url), f"kuvasz_{source.name}") as exported:
        parts = ranges(connection, exported, "P q", target_bytes=8192)
        assert len(parts) >= 4
        rows = copied(parts)
    assert sorted(rows) == sorted((str(i).encode(), f"v{i}".encode()) for i in range(1000))


def test_rows_written_after_the_snapshot_are_not_copied(source, connection):
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'old')")
    with slots.create(conninfo.replication_conninfo(source.url), f"kuvasz_{source.name}") as exported:
        parts = ranges(connection, exported)
        connection.execute("UPDATE t SET v = 'new'; INSERT INTO t SELECT i, 'x' FROM generate_series(2, 9999) i")
        assert copied(parts) == [(b"1", b"old")]
        with snapshot.session(source.url, exported.snapshot_name) as session:
            assert session.execute("SELECT count(*) FROM public.t").fetchone() == (1,)


@pytest.mark.parametrize(
    "rewrite",
    ["VACUUM FULL t", "TRUNCATE t", "ALTER TABLE t ALTER v TYPE varchar(9) USING v", "ALTER TABLE t RENAME TO t2"],
)
def test_a_table_that_was_rewritten_meanwhile_is_not_copied_in_part(source, connection, rewrite):
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'old')")
    with slots.create(conninfo.replication_conninfo(source.url), f"kuvasz_{source.name}") as exported:
        parts = ranges(connection, exported)
        connection.execute(rewrite)
        with pytest.raises(SourceError, match=r"rewritten or renamed meanwhile|the table is gone") as caught:
            copied(parts)
        assert caught.value.hint == "it is copied again with a new snapshot"


TWO = """
    CREATE TABLE t (id int PRIMARY KEY, v text, w text) PARTITION BY RANGE (id);
    CREATE TABLE p1 PARTITION OF t FOR VALUES FROM (0) TO (10);
    CREATE TABLE p2 PARTITION OF t FOR VALUES FROM (10) TO (20);
    CREATE TABLE u (id int PRIMARY KEY, v text, w text);
    INSERT INTO t VALUES (1, 'v', 'w'), (11, 'v', 'w')"""
SWAPPED = "ALTER TABLE {t} RENAME v TO x; ALTER TABLE {t} RENAME w TO v; ALTER TABLE {t} RENAME x TO w"
LEFT = "ALTER TABLE t DETACH PARTITION p1; "


@pytest.mark.parametrize(
    "change",
    [
        SWAPPED.format(t="t"),
        "ALTER TABLE t DROP v; ALTER TABLE t ADD v text",
        LEFT + SWAPPED.format(t="p1"),
        "ALTER TABLE p1 RENAME TO x; ALTER TABLE u RENAME TO p1",
        "ALTER SCHEMA public RENAME TO s; CREATE SCHEMA public; CREATE TABLE public.p1 (id int, v text, w text)",
    ],
    ids=["columns", "a new column", "a partition's columns", "a partition", "the schema"],
)
def test_nothing_is_read_under_a_name_that_was_given_to_something_else(source, connection, change):
    connection.execute(TWO)
    with slots.create(conninfo.replication_conninfo(source.url), f"kuvasz_{source.name}") as exported:
        parts = [part for part in ranges(connection, exported, target_bytes=1 << 20) if part.table.name == "p1"]
        assert copied(parts) == [(b"1", b"v", b"w")]
        connection.execute(change)
        with pytest.raises(SourceError, match=r"the table, or a column of it, was rewritten or renamed meanwhile"):
            copied(parts)


@pytest.mark.parametrize(
    ("change", "changed"),
    [
        (SWAPPED.format(t="t"), "public.p1, public.p2, public.t"),
        (SWAPPED.format(t="t") + "; " + SWAPPED.format(t="t"), "public.p1, public.p2, public.t"),
        ("ALTER TABLE t DROP v; ALTER TABLE t ADD v text", "public.p1, public.p2, public.t"),
        ("ALTER TABLE t RENAME TO x; ALTER TABLE u RENAME TO t", "public.t"),
        (LEFT + SWAPPED.format(t="p1"), "public.p1"),
        ("ALTER SCHEMA public RENAME TO s", "public.p1, public.p2, public.t"),
        ("DROP TABLE t", "public.t"),
        ("ALTER TABLE t ADD x int DEFAULT 5", ""),
        ("CREATE TABLE p3 PARTITION OF t FOR VALUES FROM (20) TO (30)", ""),
        ("DROP TABLE p2", ""),
        ("ANALYZE t", ""),
        ("VACUUM FULL t", ""),
        ("CREATE INDEX ON t (v)", ""),
        ("UPDATE t SET v = w", ""),
    ],
)  # fmt: skip
def test_what_a_copy_named_is_compared_when_it_is_read(source, connection, change, changed):
    connection.execute(TWO)
    with slots.create(conninfo.replication_conninfo(source.url), f"kuvasz_{source.name}") as exported:
        connection.execute("ALTER TABLE t ALTER v SET STATISTICS 5")  # the snapshot does not show it
        connection.execute("ALTER TABLE t ADD y int")
        names = names_of(source, exported)
        with pytest.raises(SourceError, match=r"public\.t was altered or renamed meanwhile"):
            names.check(source.url)
    with slots.create(conninfo.replication_conninfo(source.url), f"kuvasz_{source.name}_2") as exported:
        names = names_of(source, exported)
        for statement in change.split("; "):  # VACUUM wants to be alone
            connection.execute(statement)
        if not changed:
            names.check(source.url)
            return
        with pytest.raises(SourceError) as caught:
            names.check(source.url, "look again")
        what = f"cannot read public.t as it was: {changed} was altered or renamed meanwhile"
        assert caught.value.message.endswith(f"/{source.name}: {what}")
        assert caught.value.hint == "look again"


def names_of(source, exported):
    with snapshot.session(source.url, exported.snapshot_name) as session:
        table = introspect.load_relation(session, TableName(schema="public", name="t"))
        return snapshot.Names.of(session, table)


def test_a_snapshot_that_is_gone_is_told(source, connection):
    connection.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with slots.create(conninfo.replication_conninfo(source.url), f"kuvasz_{source.name}") as exported:
        parts = ranges(connection, exported)
    wait_until(lambda: "the exported snapshot is gone" in failure_of(parts), "the snapshot is missed")


def failure_of(parts):
    try:
        copied(parts)
    except SourceError as error:
        return error.message
    return ""


def test_a_role_that_may_not_read_is_told_the_grant(source, connection, exported):
    role = f"blind_{source.name}_{source.server.version}"
    connection.execute(f"CREATE TABLE t (id int PRIMARY KEY); CREATE ROLE {role} LOGIN")
    try:
        url = conninfo.conninfo(source.server.url(source.name, user=role))
        part = snapshot.CopyRange(
            conninfo=url, snapshot_name=exported.snapshot_name, table=TableName(schema="public", name="t"),
            columns=("id",),
        )  # fmt: skip
        with pytest.raises(SourceRefused, match="permission denied for table t") as caught:
            list(part.read())
        assert 'GRANT SELECT ON "public"."t"' in caught.value.hint
    finally:
        connection.execute(f"DROP ROLE {role}")


@pytest.fixture
def pgconn(database):
    opened = conninfo.connect_pq(conninfo.conninfo(database.url))
    yield opened
    opened.finish()


ODD_ROWS = (
    "COPY (SELECT i, repeat('x', (i * 7919) % 300), CASE WHEN i IN (7, 5000) THEN repeat('y', 3000000) END"
    " FROM generate_series(1, {rows}) i) TO STDOUT"
)


@pytest.mark.parametrize("chunk_bytes", [1, 1000, 8 << 20])
def test_the_fast_reader_gives_what_libpq_gives(pgconn, chunk_bytes):
    query = ODD_ROWS.format(rows=200 if chunk_bytes == 1 else 20000)
    assert copy_out.is_plain(pgconn)
    fast = [bytes(chunk) for chunk in copy_out.rows(pgconn, query, chunk_bytes, place="p", doing="d")]
    plain = list(copy_out.libpq_rows(pgconn, query, chunk_bytes, place="p", doing="d"))
    assert b"".join(fast) == b"".join(plain)
    for chunks in (fast, plain):
        assert all(chunk.endswith(b"\n") for chunk in chunks)
        assert all(len(chunk) >= chunk_bytes for chunk in chunks[:-1])
    assert pgconn.exec_(b"SELECT 1").get_value(0, 0) == b"1"  # the connection is as before


@pytest.mark.parametrize("read", [copy_out.rows, copy_out.libpq_rows])
def test_an_empty_result_has_no_chunk(pgconn, read):
    assert list(read(pgconn, "COPY (SELECT 1 WHERE false) TO STDOUT", 100, place="p", doing="d")) == []


@pytest.mark.parametrize("read", [copy_out.rows, copy_out.libpq_rows])
def test_an_error_after_many_rows_is_raised(pgconn, read):
    query = "COPY (SELECT 1 / (90000 - i) FROM generate_series(1, 100000) i) TO STDOUT"
    with pytest.raises(SourceError, match=r"u@h: cannot copy t: .*division by zero"):
        list(read(pgconn, query, 100000, place="u@h", doing="copy t"))


@pytest.mark.parametrize("read", [copy_out.rows, copy_out.libpq_rows])
def test_a_session_that_ends_amid_the_rows_is_raised(database, pgconn, read):
    query = "COPY (SELECT i, repeat('x', 1000) FROM generate_series(1, 100000) i) TO STDOUT"
    chunks = read(pgconn, query, 1000, place="u@h", doing="copy t")
    next(chunks)
    database.execute("SELECT pg_terminate_backend(%s)", (pgconn.backend_pid,))
    with pytest.raises(SourceError, match="u@h: cannot copy t: "):
        list(chunks)


def in_sessions(parts, sessions):
    return [row for part in parts for piece in dataclasses.replace(part, sessions=sessions).read() for row in
            bytes(piece).splitlines()]  # fmt: skip


def test_small_ranges_are_read_in_one_session_that_holds_no_lock_between_them(source, connection, exported_after):
    for name in "abc":
        connection.execute(f"CREATE TABLE {name} AS SELECT '{name}' || i AS v FROM generate_series(1, 3) i")
    exported = exported_after()
    parts = [part for name in "abc" for part in ranges(connection, exported, name)]
    connection.execute("INSERT INTO b VALUES ('later')")
    sessions = snapshot.Sessions(1)
    pids = []
    for part, name in zip(parts, "abc", strict=True):
        assert in_sessions([part], sessions) == [f"{name}{i}".encode() for i in range(1, 4)], "and of the snapshot"
        pids.append([session.info.backend_pid for session in sessions._idle])
        connection.execute(f"ALTER TABLE {name} ADD COLUMN w int")
    assert pids == [pids[0]] * 3
    assert len(pids[0]) == 1
    with sessions.other(lambda: conninfo.conninfo(source.url)) as again:
        assert again.info.backend_pid == pids[0][0], "what is read is checked in the session that read it"
        assert again.execute("SELECT 1").fetchall() == [(1,)]
    sessions.rest()
    assert not again.closed, "it is kept"
    sessions.close()
    assert again.closed
    assert in_sessions(parts[:0], sessions) == []


def test_sessions_that_are_not_kept_last_until_somebody_rests(source, connection, exported_after):
    connection.execute("CREATE TABLE a AS SELECT 1 AS v")
    exported = exported_after()
    (part,) = ranges(connection, exported, "a")
    sessions = snapshot.Sessions(1, is_kept=False)
    assert in_sessions([part], sessions) == [b"1"]
    (kept,) = sessions._idle
    with sessions.other(lambda: conninfo.conninfo(source.url)) as again:
        assert again is kept
    sessions.rest()
    assert again.closed
    assert in_sessions([part], sessions) == [b"1"]
    sessions.close()
    assert sessions._idle == []


def test_a_session_that_failed_or_was_ended_is_not_used_again(source, connection, exported_after):
    connection.execute("CREATE TABLE a AS SELECT 1 AS v; CREATE TABLE b AS SELECT 2 AS v")
    exported = exported_after()
    parts = [part for name in "ab" for part in ranges(connection, exported, name)]
    sessions = snapshot.Sessions(1)
    assert in_sessions(parts[:1], sessions) == [b"1"]
    connection.execute("ALTER TABLE a RENAME TO c")
    with pytest.raises(SourceError, match=r"is gone|renamed"):
        in_sessions(parts[:1], sessions)
    assert sessions._idle == []
    assert in_sessions(parts[1:], sessions) == [b"2"]
    (ended,) = sessions._idle
    connection.execute("SELECT pg_terminate_backend(%s, 5000)", [ended.info.backend_pid])
    assert in_sessions(parts[1:], sessions) == [b"2"]
    sessions.close()
    assert in_sessions(parts[1:], sessions) == [b"2"], "whoever is late opens one, and closes it"
    assert sessions._idle == []
    assert in_sessions([pickle.loads(pickle.dumps(dataclasses.replace(parts[1], sessions=sessions)))], None) == [b"2"]


def test_names_of_many_tables_are_those_of_each(connection):
    connection.execute("""
        CREATE TABLE a (v int); CREATE TABLE p (v int) PARTITION BY LIST (v);
        CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1)""")
    names = [TableName(schema="public", name=name) for name in ("a", "p")]
    found = list(introspect.load_relations(connection, names).values())
    together = snapshot.Names.of_all(connection, found)
    assert together == {table.relation.oid: snapshot.Names.of(connection, table) for table in found}
    connection.execute("ALTER TABLE p1 ADD CHECK (v = 1); ALTER TABLE a RENAME v TO w")
    for table in found:
        if table.table.name == "p":
            together[table.relation.oid].check_in(connection)
        else:
            with pytest.raises(SourceError, match=r"public\.a was altered or renamed meanwhile"):
                together[table.relation.oid].check_in(connection)


def test_rows_read_ahead_are_the_snapshots_and_of_what_it_shows(source, connection, exported_after):
    connection.execute("CREATE TABLE a AS SELECT i AS v FROM generate_series(1, 3) i")
    connection.execute("CREATE TABLE b AS SELECT i AS v FROM generate_series(1, 3) i")
    exported = exported_after()
    parts = {name: ranges(connection, exported, name)[0] for name in "ab"}
    with snapshot.session(parts["a"].conninfo, exported.snapshot_name) as under:
        tables = [introspect.load_relation(under, TableName(schema="public", name=name)) for name in "ab"]
        names = snapshot.Names.of_all(under, tables)
    connection.execute("INSERT INTO a VALUES (4)")
    ahead = parts["a"].rows_ahead(100)
    assert ahead is not None
    assert parts["a"].rows_ahead(3) is None, "it has more"
    connection.execute("DROP TABLE a")
    connection.execute("TRUNCATE b")
    assert b"".join(parts["a"].with_rows(ahead).read()) == b"1\n2\n3\n"
    assert ahead.is_taken
    assert parts["b"].with_rows(ahead).ahead is None, "they answer another question"
    assert pickle.loads(pickle.dumps(parts["a"].with_rows(ahead))).ahead is None, "they stay in this process"
    with conninfo.connect(source.url) as now:
        unchanged = snapshot.Names.unchanged(now, names.values())
    assert unchanged == {tables[1].relation.oid}, "a table that has lost its rows has its names"
