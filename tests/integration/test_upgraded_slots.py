"""What a server that pg_upgrade has made says of the one before: its slots nothing, as docs/limits.md has it.

pg_upgrade makes slots anew (PostgreSQL's `create_logical_replication_slots`), where the new server's WAL begins. It
refuses slots that have something left to read, so whoever has one reads it, or moves it on: nothing tells which.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kuvasz import lsn
from kuvasz.demo.postgres import EmbeddedPostgres
from kuvasz.source import conninfo
from kuvasz.source.check import upgraded
from tests.support.postgres import Database, Server, create_database
from tests.support.standby import new_folder, removed_after
from tests.support.upgrade import upgrade
from tests.support.waiting import wait_until

#: What a session has committed is there to be read.
SETTINGS = {"synchronous_commit": "on"}

pytestmark = [pytest.mark.postgres, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def old() -> Iterator[EmbeddedPostgres]:
    """A server that will be upgraded."""
    server = Server(new_folder(), version=18, settings=SETTINGS)
    server.start()
    with removed_after(server):
        yield server


def read(shop: Database, slot: str) -> int:
    """Read a slot to its end; how many messages it had."""
    ((found,),) = shop.execute(
        "SELECT count(*) FROM pg_logical_slot_get_binary_changes(%s, NULL, NULL, 'proto_version', '1',"
        " 'publication_names', 'items')", (slot,),
    )  # fmt: skip
    return found


def standing(shop: Database) -> dict[str, int]:
    """Where each slot stands."""
    found = shop.execute("SELECT slot_name, confirmed_flush_lsn::text FROM pg_replication_slots")
    return {slot: lsn.parse(at) for slot, at in found}


def found_at_rest(shop: Database) -> int:
    """Find a server at rest, and not while a transaction runs that has a number."""
    with conninfo.connect(shop.url) as connection, shop.connect() as running:
        running.execute("DELETE FROM items WHERE false; SELECT txid_current()")
        shop.execute("SELECT txid_current()")
        assert upgraded.at_rest(connection) is None
        running.rollback()
        found = upgraded.at_rest(connection)
    assert found is not None
    return found.xid


def what_the_server_itself_says(shop: Database, rest: int) -> None:
    """That it began where the old one was at rest, and whether somebody may have written since."""
    ((oid,),) = shop.execute("SELECT 'items'::regclass::oid::bigint")

    def found(*oids: int) -> str:
        with conninfo.connect(shop.url) as connection:
            return upgraded.why_not(rest, upgraded.load(connection, [oid, *oids]))

    def why_not(*oids: int) -> str:
        wait_until(lambda: not found(*oids).startswith("others"), "sessions that were closed have ended")
        return found(*oids)

    with shop.connect(autocommit=True) as session:
        session.execute("ANALYZE")
        session.execute("VACUUM items")
    assert why_not() == ""
    with shop.connect():
        assert found().endswith("may have written: postgres")
    shop.execute("CREATE TABLE later (id int PRIMARY KEY)")
    ((later,),) = shop.execute("SELECT 'later'::regclass::oid::bigint")
    assert why_not(later) == ""
    assert not shop.takes("BEGIN; INSERT INTO later VALUES (1); SELECT 1 / 0")
    assert why_not(later) == "1 of its tables were written since"
    shop.server.restart()
    assert why_not(later) == "1 of its tables were written since"
    shop.execute("SELECT pg_stat_reset_single_table_counters(%s)", (later,))
    assert why_not(later).startswith("its statistics were reset")
    shop.server.restart("immediate")
    assert why_not(later).startswith("its statistics were reset")


def test_a_slot_that_was_moved_on_over_changes_comes_along_like_one_that_was_read(old: EmbeddedPostgres) -> None:
    shop = create_database(old, "shop")
    shop.execute("CREATE TABLE items (id int PRIMARY KEY); CREATE PUBLICATION items FOR TABLE items")
    for slot in ("read", "moved"):
        shop.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput', false, false, true)", (slot,))
    shop.execute("INSERT INTO items VALUES (1)")
    assert read(shop, "read")
    old.stop()
    refused = Server(new_folder(), version=18, settings=SETTINGS)
    with pytest.raises(RuntimeError, match="slots"):
        upgrade(old, refused)
    refused.remove()
    old.start()
    rest = found_at_rest(shop)
    shop.execute("CHECKPOINT")  # what was rolled back is to be read as well
    read(shop, "read")
    shop.execute("SELECT pg_replication_slot_advance('moved', pg_current_wal_lsn())")
    before = standing(shop)
    old.stop()
    new = Server(new_folder(), version=18, port=old.port, settings=SETTINGS)
    with removed_after(new):
        upgrade(old, new)
        shop = Database(new, "shop")
        after = standing(shop)
        # Made anew, both at one time: the new server knows nothing of where the old one's stood.
        assert max(before.values()) < min(after.values())
        assert len({at >> 16 for at in after.values()}) == 1
        assert shop.execute("SELECT id FROM items") == [(1,)]
        assert not read(shop, "moved")
        what_the_server_itself_says(shop, rest)
        shop.execute("INSERT INTO items VALUES (2)")
        assert read(shop, "read") == read(shop, "moved")
