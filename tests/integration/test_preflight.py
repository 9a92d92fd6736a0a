from __future__ import annotations

import psycopg
import pytest

from kuvasz.demo.postgres import EmbeddedPostgres
from kuvasz.model import TableName
from kuvasz.source import conninfo, publication, slots
from kuvasz.source.catalog import introspect, sizes
from kuvasz.source.check import preflight, privileges, transport
from kuvasz.source.check.finding import Severity
from kuvasz.sync.rules import copy_plan
from tests.support.postgres import needs

pytestmark = pytest.mark.postgres


@pytest.fixture
def connection(source):
    with conninfo.connect(source.url) as opened:
        opened.execute("SET search_path = public")  # the tests' own statements name no schema
        yield opened


def public(*names):
    return [TableName(schema="public", name=name) for name in names]


def check(url, *names, **options):
    return preflight.check_source(url, "shop", "eu", public(*names), **options)


def the(findings, check, table=None):
    (found,) = [one for one in findings if one.check == check and (table is None or one.table.name == table)]
    return found


def test_a_source_in_order_passes(source, connection):
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    findings = check(source.url, "t")
    assert [one for one in findings if not one.ok] == []
    assert {one.check for one in findings} == {
        "reachable", "sslmode", "version", "encoding", "wal_level", "recovery", "senders", "max_slot_wal_keep_size",
        "direct", "session", "replication_privilege", "replication", "slots", "transactions", "table", "select",
        "key", "publication",
    }  # fmt: skip
    assert {one.source for one in findings} == {"kuvasz_shop_eu"}


def test_a_way_to_a_remote_server_that_others_may_listen_on_is_worth_a_word(source, monkeypatch):
    monkeypatch.setattr(transport, "is_local", lambda address: False)
    found = the(check(source.url), "sslmode")
    assert (found.ok, found.is_blocking) == (False, False)
    assert found.value == "prefer: not encrypted: whoever is in between may read and change what is sent"
    assert "sslmode=verify-full" in found.fix


def test_a_url_that_asks_for_replication_is_told_and_works(source, connection):
    findings = check(f"{source.url}?replication=database", "t")
    assert (the(findings, "url").is_blocking, the(findings, "wal_level").ok) == (False, True)


def test_tables_with_something_amiss(source, connection):
    connection.execute("""
        CREATE TABLE "Orders" (id int PRIMARY KEY); CREATE TABLE keyless (v int);
        CREATE TABLE nothing (id int PRIMARY KEY); ALTER TABLE nothing REPLICA IDENTITY NOTHING;
        CREATE TABLE whole (v int); ALTER TABLE whole REPLICA IDENTITY FULL;
        CREATE TABLE odd (id int PRIMARY KEY, n numeric, i interval, g int GENERATED ALWAYS AS (id) STORED);
        CREATE VIEW v AS SELECT 1""")
    findings = check(source.url, "orders", "keyless", "nothing", "whole", "odd", "v")
    assert the(findings, "table", "orders").fix.endswith("did you mean public.Orders?")
    assert the(findings, "key", "keyless").is_blocking
    assert the(findings, "key", "nothing").fix == 'ALTER TABLE "public"."nothing" REPLICA IDENTITY DEFAULT;'
    assert the(findings, "key", "whole").severity is Severity.ADVICE
    assert the(findings, "types", "odd").value == "n numeric, i interval"
    assert the(findings, "generated_columns", "odd").value == "g"
    assert the(findings, "table", "v").value == "it is a view"
    connection.execute(the(findings, "key", "keyless").fix.split(";")[0])
    connection.execute(the(findings, "key", "nothing").fix)
    mended = check(source.url, "keyless", "nothing")
    assert [one for one in mended if one.is_blocking] == []
    assert the(mended, "publication").ok


def test_a_role_without_rights_and_the_sql_that_gives_them(source, connection):
    connection.execute("""
        CREATE SCHEMA "S s"; CREATE TABLE "S s"."a.B" (id int PRIMARY KEY, v text);
        INSERT INTO "S s"."a.B" VALUES (1, 'x');
        CREATE TABLE p (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
        CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10); INSERT INTO p VALUES (1, 'y')""")
    names = [TableName(schema="S s", name="a.B"), TableName(schema="public", name="p")]
    role = f"Repl {source.name} {source.server.version}"
    url = f"postgresql://{role.replace(' ', '%20')}@127.0.0.1:{source.server.port}/{source.name}"
    connection.execute(f'CREATE ROLE "{role}" LOGIN')
    poor = preflight.check_source(url, "shop", "eu", names)
    assert {one.check for one in poor if one.is_blocking} == {
        "replication_privilege", "replication", "select", "publication",
    }  # fmt: skip
    for one in poor:  # every fix is what a superuser can run
        if one.is_blocking and one.check in ("replication_privilege", "select"):
            connection.execute(one.fix.split(" -- ")[0])
    connection.execute(the(poor, "publication").fix)
    assert [one for one in preflight.check_source(url, "shop", "eu", names) if one.is_blocking] == []
    publication.drop(connection, "kuvasz_shop_eu")
    connection.execute(f'DROP OWNED BY "{role}"; DROP ROLE "{role}"')


def test_the_least_privileges_are_enough_for_everything(source, connection):
    connection.execute(
        """
        CREATE SCHEMA "S s"; CREATE TABLE "S s"."a.B" (id int PRIMARY KEY, v text);
        INSERT INTO "S s"."a.B" VALUES (1, 'x');
        CREATE TABLE p (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
        CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10); INSERT INTO p VALUES (1, 'y');
        REVOKE CONNECT ON DATABASE """
        + source.name
        + " FROM PUBLIC"
    )
    names = [TableName(schema="S s", name="a.B"), TableName(schema="public", name="p")]
    name = publication.object_name("shop", source.name)
    role = f"least_{source.name}_{source.server.version}"
    tables = introspect.load_relations(connection, names).values()
    connection.execute(privileges.least_privileges(role, source.name, name, tables))
    url = source.server.url(source.name, user=role)
    try:
        findings = preflight.check_source(url, "shop", source.name, names)
        assert [one for one in findings if one.is_blocking] == []
        with conninfo.connect(url) as session:
            own = introspect.load_relations(session, names)
            assert not publication.reconcile(session, name, own.values())
            with slots.create(conninfo.replication_conninfo(url), name) as exported:
                pinned = exported.pinned(conninfo.conninfo(url))
                given = {"conninfo": pinned, "snapshot_name": exported.snapshot_name, "target_bytes": 1 << 20}
                parts = [
                    part
                    for table in own.values()
                    for part in copy_plan.copy_ranges(sizes.sized(session, table), **given)
                ]
                assert sorted(b"".join(map(bytes, part.read())) for part in parts) == [b"1\tx\n", b"1\ty\n"]
            assert introspect.server(session).system_identifier > 0
            assert slots.drop(session, name)
    finally:
        publication.drop(connection, name)
        connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_row_security_is_told(source, connection):
    role = f"rls_{source.name}_{source.server.version}"
    connection.execute(f"""
        CREATE TABLE t (id int PRIMARY KEY); ALTER TABLE t ENABLE ROW LEVEL SECURITY;
        CREATE ROLE {role} LOGIN REPLICATION; GRANT SELECT ON t TO {role}""")
    url = source.server.url(source.name, user=role)
    try:
        connection.execute(the(check(url, "t"), "row_security").fix)
        assert [one for one in check(url, "t") if one.check == "row_security"] == []
    finally:
        connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_a_slot_that_is_there(source, connection):
    connection.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION p")
    name = publication.object_name("shop", "eu")
    slots.create(conninfo.replication_conninfo(source.url), name).close()
    reader = psycopg.pq.PGconn.connect(conninfo.replication_conninfo(source.url).encode())
    reader.exec_(f"START_REPLICATION SLOT {name} LOGICAL 0/0 (proto_version '1', publication_names 'p')".encode())
    try:
        findings = check(source.url, "t")
        assert the(findings, "slot").value == "present"
        assert the(findings, "slot_in_use").value == f"by pid {reader.backend_pid}"
        assert not the(findings, "slot_in_use").is_blocking
    finally:
        reader.finish()


def test_an_old_transaction_is_told(source, connection):
    connection.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with source.connect() as writer:
        writer.execute("INSERT INTO t VALUES (1)")
        found = the(check(source.url, "t", old_transaction_s=0.0), "transactions")
        assert f"pid {writer.info.backend_pid} (postgres) since 0 s" in found.value
        assert (found.ok, found.is_blocking) == (False, False)


def test_a_publication_that_hides_something_is_told(source, connection):
    needs(source.server, 15, "column lists")
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
    name = publication.object_name("shop", "eu")
    connection.execute(f"CREATE PUBLICATION {name} FOR TABLE t (id) WITH (publish_via_partition_root)")
    found = the(check(source.url, "t"), "publication")
    assert found.is_blocking
    assert "without its columns v" in found.value
    connection.execute(found.fix)
    assert the(check(source.url, "t"), "publication").value == "fits"


def test_a_server_that_is_not_there_is_one_finding(source):
    (found,) = check("postgresql://u:s3cret@127.0.0.1:1/d", "t")
    assert (found.check, found.is_blocking) == ("reachable", True)
    assert "s3cret" not in repr(found)
    (found,) = check(source.server.url("nix"), "t")
    assert 'database "nix" does not exist' in found.value
    assert found.fix == "check the database's name in the url"


def test_a_server_set_up_for_physical_replication_only(tmp_path):
    settings = {"wal_level": "replica", "max_replication_slots": "0", "max_wal_senders": "0",
                "max_slot_wal_keep_size": "64MB"}  # fmt: skip
    with EmbeddedPostgres(tmp_path / "data", version=16, settings=settings) as server:
        findings = check(server.url(), "t")
        assert the(findings, "wal_level").fix == "ALTER SYSTEM SET wal_level = 'logical'; -- then restart the server"
        assert the(findings, "slots").fix.startswith("ALTER SYSTEM SET max_replication_slots = 10;")
        assert the(findings, "senders").is_blocking
        assert not the(findings, "replication").ok
        keep = the(findings, "max_slot_wal_keep_size")
        assert (keep.value, keep.ok) == ("64MB", False)
        with conninfo.connect(server.url()) as connection:
            for setting in ("wal_level", "slots", "senders"):
                connection.execute(the(findings, setting).fix.split(" -- ")[0])
        server.settings.update(wal_level="logical", max_replication_slots="10", max_wal_senders="10")
        server.restart()
        mended = check(server.url())
        assert [one.check for one in mended if not one.ok] == ["max_slot_wal_keep_size"]


def test_a_table_that_does_with_inserts_alone_is_told_and_gets_a_publication_of_its_own(source, connection):
    connection.execute("CREATE TABLE logs (n int); CREATE TABLE t (id int PRIMARY KEY)")
    findings = check(source.url, "t", "logs", inserts_do=public("logs"))
    key = the(findings, "key", "logs")
    assert (key.ok, key.severity) == (False, Severity.ADVICE)
    assert "only its INSERTs are replicated" in key.value
    assert [(one.ok, one.value) for one in findings if one.check == "publication"] == [(True, "may be made so")] * 2
    assert the(check(source.url, "logs"), "key", "logs").is_blocking
