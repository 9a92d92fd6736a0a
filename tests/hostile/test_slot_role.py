"""Functions that whoever owns a table has in its indexes do nothing to slots, where another role has the right to.

What a role with REPLICATION does to slots is no write: a transaction that is read-only and rolled back keeps it. So
the role that reads must not have it; see `UrlConfig.replication_url`.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Iterator

import psycopg
import pytest

from kuvasz.config import sources
from kuvasz.config.secrets import SecretUrl
from kuvasz.demo.postgres import EmbeddedPostgres
from kuvasz.source import conninfo
from kuvasz.source.check.preflight import StreamOptions, check_source
from kuvasz.verbs import cleanup, verify
from tests.support.lake import LakeFolder, Pipeline
from tests.support.oracle import source_rows
from tests.support.owner_functions import PLACES, WAYS, whole
from tests.support.postgres import Database, create_database, drop_database
from tests.support.waiting import wait_until

pytestmark = pytest.mark.postgres

READER, REPLICATOR = "a_slotless_reader", "a_slot_role"

#: What a tenant has done by whoever reads his table: another database's slot is dropped, one is made that keeps WAL
#: for ever, and streams are ended. The server's log says who ran it, and what came of it.
SLOTS = """
CREATE FUNCTION mine(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$DECLARE what text; found int; BEGIN
    IF current_user IN ('a_slot_tenant', 'postgres') THEN RETURN $1; END IF;
    FOREACH what IN ARRAY ARRAY[
        $_$SELECT pg_drop_replication_slot('of_another')$_$,
        $_$SELECT pg_create_physical_replication_slot('of_tenant', true)$_$,
        $_$SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active_pid IS NOT NULL$_$]
    LOOP BEGIN
        EXECUTE what; GET DIAGNOSTICS found = ROW_COUNT;
        IF found > 0 THEN RAISE LOG '% in %: done', current_user, current_database(); END IF;
    EXCEPTION WHEN OTHERS THEN RAISE LOG '% in %: %', current_user, current_database(), SQLSTATE; END; END LOOP;
    RETURN $1; END$$
"""


@dataclasses.dataclass
class Tenancy:
    """A database of a tenant, and another one on the same server that has a slot."""

    tenant: Database
    another: Database

    def read_as(self, role: str) -> str:
        return self.tenant.url.replace("postgres@", f"{role}@")

    def make(self, statements: str) -> None:
        with psycopg.connect(self.read_as("a_slot_tenant"), autocommit=True) as session:
            for statement in (SLOTS, *statements.split("; "), "INSERT INTO items VALUES (1, 1), (2, 2)"):
                session.execute(statement)

    @property
    def slots(self) -> set[str]:
        return {name for (name,) in self.another.execute("SELECT slot_name::text FROM pg_replication_slots")}

    @property
    def tries(self) -> Counter[tuple[str, str]]:
        """Who ran the function and what came of it -> how often."""
        text = (self.tenant.server.folder / "server.log").read_text(errors="replace")
        return Counter(re.findall(rf"LOG:  (\w+) in {self.tenant.name}: (\w+)", text))


@pytest.fixture(params=[pytest.param("postgres16", marks=pytest.mark.slow), "postgres18"])
def tenancy(request: pytest.FixtureRequest) -> Iterator[Tenancy]:
    server: EmbeddedPostgres = request.getfixturevalue(request.param)
    made = Tenancy(create_database(server), create_database(server))
    try:
        for statement in (
            "CREATE ROLE a_slot_tenant LOGIN", f"CREATE ROLE {READER} LOGIN IN ROLE a_slot_tenant",
            f"CREATE ROLE {REPLICATOR} LOGIN REPLICATION", "GRANT ALL ON SCHEMA public TO a_slot_tenant",
            f"GRANT CREATE ON DATABASE {made.tenant.name} TO {READER}",
        ):  # fmt: skip
            made.tenant.execute(statement)
        made.another.execute("SELECT pg_create_logical_replication_slot('of_another', 'pgoutput')")
        yield made
    finally:
        drop_database(made.tenant)
        drop_database(made.another)
        with psycopg.connect(server.url(), autocommit=True) as session:
            session.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
                            " WHERE slot_name = 'of_tenant'")  # fmt: skip
            session.execute(f"DROP ROLE IF EXISTS a_slot_tenant, {READER}, {REPLICATOR}")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("place", PLACES)
def test_who_reads_has_no_right_to_slots_that_a_function_could_use(
    tenancy: Tenancy, place: str, way: Callable[[str, psycopg.Connection], None]
) -> None:
    tenancy.make(f"{PLACES[place]}; ANALYZE items")
    url = tenancy.read_as(READER)
    with conninfo.connect(url) as session:
        way(url, session)
    assert tenancy.slots == {"of_another"}
    assert {who for who, _ in tenancy.tries} <= {READER}
    assert {came_of_it for _, came_of_it in tenancy.tries} <= {"42501"}


def test_a_right_that_who_reads_keeps_is_used_by_them(tenancy: Tenancy) -> None:
    """Why `kuvasz check` tells of it."""
    tenancy.make(PLACES["an index"])
    tenancy.tenant.execute(f"ALTER ROLE {READER} REPLICATION")
    url, wanted = tenancy.read_as(READER), StreamOptions(role=SecretUrl(f"postgresql://{REPLICATOR}@"))
    with conninfo.connect(url) as session:
        whole(url, session)
    assert tenancy.slots == {"of_tenant"}
    found = {one.check: one for one in check_source(url, "shop", None, [], wanted=wanted)}
    told = found["reading_privilege"]
    assert (told.ok, told.is_blocking, told.value) == (False, False, f"{READER}: yes")
    tenancy.tenant.execute(told.fix)
    found = {one.check: one for one in check_source(url, "shop", None, [], wanted=wanted)}
    assert (found["reading_privilege"].ok, found["replication_privilege"].ok) == (True, True)


@pytest.mark.spark
def test_a_source_is_replicated_while_a_function_tries(tenancy: Tenancy, lake_folder: LakeFolder) -> None:
    """Start, copy, stream, another column, another copy, comparison, another start, end: none reads as who may."""
    tenancy.make(PLACES["an index"])
    url = {"url": tenancy.read_as(READER), "replication_url": f"postgresql://{REPLICATOR}@"}
    config = lake_folder.config([{"database": "shop", "urls": [url], "tables": {"items": None}}])
    seen = Database(tenancy.tenant.server, tenancy.tenant.name)
    seen.url = url["url"]
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        tenancy.tenant.execute("INSERT INTO items VALUES (3, 3)")
        tenancy.tenant.execute("ALTER TABLE items ADD COLUMN more text")
        tenancy.tenant.execute("UPDATE items SET n = 7, more = 'x' WHERE id = 1")
        pipeline.wait_applied(seen)
        pipeline.assert_equal("items", source_rows(tenancy.tenant.url, "items"))
        copied = tenancy.tries.total()
        pipeline.tell("resync", "shop.items", "shop")
        wait_until(lambda: tenancy.tries.total() > copied, lambda: f"it is copied again: {pipeline.errors()}")
        pipeline.wait_streaming()
        (report,) = verify.reports(config, session=lake_folder.session, is_fixing=True)
        assert (report.error, report.skipped, report.left, bool(report.lsn)) == ("", "", 0, True)
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        tenancy.tenant.execute("DELETE FROM items WHERE id = 2")
        pipeline.wait_applied(seen)
        pipeline.assert_equal("items", source_rows(tenancy.tenant.url, "items"))
    assert tenancy.slots == {"of_another", "kuvasz_shop"}
    (source,) = sources.resolve(config)
    assert [step.outcome for step in cleanup.clean(source)] == ["dropped", "dropped"]
    assert tenancy.slots == {"of_another"}
    assert set(tenancy.tries) == {(READER, "42501")}
