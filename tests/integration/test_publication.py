from __future__ import annotations

import pytest

from kuvasz.errors import SourceLocked, SourceRefused
from kuvasz.model import TableName
from kuvasz.source import conninfo, publication
from kuvasz.source.catalog import introspect
from tests.support.postgres import needs

pytestmark = pytest.mark.postgres

NAME = "kuvasz_shop_eu"


@pytest.fixture
def connection(source):
    with conninfo.connect(source.url) as opened:
        opened.execute("SET search_path = public")  # the tests' own statements name no schema
        opened.execute("""
            CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE "B c" (id int PRIMARY KEY);
            CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id);
            CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10)""")
        yield opened


@pytest.fixture
def reader(source, connection):
    role = f"reader_{source.name}_{source.server.version}"
    connection.execute(f"CREATE ROLE {role} LOGIN")
    with conninfo.connect(source.server.url(source.name, user=role)) as session:
        yield session
    connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def tables(connection, *names):
    wanted = [TableName(schema="public", name=name) for name in names]
    return list(introspect.load_relations(connection, wanted).values())


def published(connection):
    rows = connection.execute("SELECT tablename FROM pg_publication_tables WHERE pubname = %s ORDER BY 1", (NAME,))
    return [name for (name,) in rows]


def test_created_then_only_differences_are_mended(connection):
    first = publication.reconcile(connection, NAME, tables(connection, "a", "p"))
    assert first.is_new
    assert published(connection) == ["a", "p"]
    assert publication.load(connection, NAME).is_via_root
    assert not publication.reconcile(connection, NAME, tables(connection, "p", "a"))
    second = publication.reconcile(connection, NAME, tables(connection, "a", "B c"))
    assert ([t.name for t in second.added], [t.name for t in second.dropped]) == (["B c"], ["p"])
    assert published(connection) == ["B c", "a"]


def test_options_changed_by_someone_are_put_right(connection):
    publication.reconcile(connection, NAME, tables(connection, "p"))
    connection.execute(f"ALTER PUBLICATION {NAME} SET (publish = 'insert', publish_via_partition_root = false)")
    assert publication.reconcile(connection, NAME, tables(connection, "p")).statements
    current = publication.load(connection, NAME)
    assert (current.is_via_root, current.operations) == (True, publication.ALL_OPERATIONS)


def test_a_publication_of_all_tables_or_a_schema_fits(source, connection):
    needs(source.server, 15, "publications of schemas")
    connection.execute(f"CREATE PUBLICATION {NAME} FOR TABLES IN SCHEMA public WITH (publish_via_partition_root)")
    assert not publication.reconcile(connection, NAME, tables(connection, "a", "p"))
    assert publication.drop(connection, NAME)
    connection.execute(f"CREATE PUBLICATION {NAME} FOR ALL TABLES WITH (publish_via_partition_root)")
    assert not publication.reconcile(connection, NAME, tables(connection, "a", "p"))


def test_the_applications_update_goes_on_working_because_a_table_without_key_is_refused(connection):
    connection.execute("CREATE TABLE keyless (v int); INSERT INTO keyless VALUES (1)")
    with pytest.raises(SourceRefused, match="keyless") as caught:
        publication.reconcile(connection, NAME, tables(connection, "a", "keyless"))
    assert publication.load(connection, NAME) is None
    connection.execute("UPDATE keyless SET v = 2")
    connection.execute(caught.value.hint)
    publication.reconcile(connection, NAME, tables(connection, "a", "keyless"))
    connection.execute("UPDATE keyless SET v = 3")


def test_row_filters_and_column_lists_are_refused_with_the_sql_that_lifts_them(source, connection):
    needs(source.server, 15, "row filters and column lists")
    connection.execute("CREATE TABLE wide (id int PRIMARY KEY, secret text)")
    members = "a WHERE (id > 5), wide (id)"
    connection.execute(f"CREATE PUBLICATION {NAME} FOR TABLE {members} WITH (publish_via_partition_root)")
    for name, what in (("a", "row filter"), ("wide", "without its columns secret")):
        with pytest.raises(SourceRefused, match=what) as caught:
            publication.reconcile(connection, NAME, tables(connection, name))
        connection.execute(caught.value.hint)
    assert not publication.reconcile(connection, NAME, tables(connection, "a", "wide"))


def test_lack_of_privilege_tells_the_sql_that_helps(connection, reader):
    wanted = tables(reader, "a")
    with pytest.raises(SourceRefused, match="cannot create publication") as caught:
        publication.reconcile(reader, NAME, wanted)
    connection.execute(caught.value.hint.split("run: ")[1])
    assert not publication.reconcile(reader, NAME, wanted)
    with pytest.raises(SourceRefused, match="cannot alter publication") as caught:
        publication.reconcile(reader, NAME, tables(reader, "a", "B c"))
    connection.execute(caught.value.hint.split("run: ")[1])
    assert not publication.reconcile(reader, NAME, tables(reader, "a", "B c"))


def test_tables_nobody_wants_stay_if_they_may_not_be_taken_out(connection, reader):
    publication.reconcile(connection, NAME, tables(connection, "a", "B c"))
    changes = publication.reconcile(reader, NAME, tables(reader, "a"))
    assert [name.name for name in changes.left] == ["B c"]
    assert published(connection) == ["B c", "a"]


def test_drop(connection, reader):
    assert not publication.drop(connection, NAME)
    publication.reconcile(connection, NAME, tables(connection, "a"))
    with pytest.raises(SourceRefused, match="cannot drop publication"):
        publication.drop(reader, NAME)
    assert publication.drop(connection, NAME)
    assert publication.load(connection, NAME) is None


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(conninfo, "LOCK_WAIT", "SET LOCAL lock_timeout = '100ms'")


@pytest.mark.parametrize("is_new", [True, False])
def test_a_locked_table_keeps_no_other_out(source, connection, impatient, is_new):
    wanted = tables(connection, "a", "B c", "p")
    if not is_new:
        publication.reconcile(connection, NAME, [])
    with source.connect() as other:
        other.execute("LOCK TABLE a IN ACCESS EXCLUSIVE MODE")
        planned = publication.plan(publication.load(connection, NAME), NAME, wanted)
        done = publication.carry_out(connection, NAME, planned)
        assert ([t.name for t in done.locked], [t.name for t in done.added]) == (["a"], ["B c", "p"])
        assert len(done.statements) == 2 + is_new
        assert published(connection) == ["B c", "p"]
        with pytest.raises(SourceLocked, match=r"^table public\.a is locked by another session, so publication"):
            publication.reconcile(connection, NAME, wanted)
    publication.reconcile(connection, NAME, wanted)
    assert published(connection) == ["B c", "a", "p"]


def test_a_locked_table_that_nobody_wants_is_left(source, connection, impatient):
    publication.reconcile(connection, NAME, tables(connection, "a", "B c"))
    with source.connect() as other:
        other.execute("LOCK TABLE a IN ACCESS EXCLUSIVE MODE")
        done = publication.reconcile(connection, NAME, tables(connection, "p"))
        assert ([t.name for t in done.left], [t.name for t in done.dropped]) == (["a"], ["B c"])
    assert [t.name for t in publication.reconcile(connection, NAME, tables(connection, "p")).dropped] == ["a"]
