"""A snapshot of a standby shows what committed before its LSN, and nothing else, whatever the primary is doing."""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
import pytest

from kuvasz import lsn
from kuvasz.demo.postgres import EmbeddedPostgres
from kuvasz.errors import SlotLost, SourceError, SourceRefused
from kuvasz.source import conninfo, slots, standby
from tests.support.postgres import Database, Server, create_database, drop_database
from tests.support.standby import catch_up, make_standby, new_folder, removed_after
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(300)]

PUBLICATION = "kuvasz_shop"

#: All transactions of a slot: the LSN of the commit record, and the ids that they inserted.
STREAM = """
SELECT get_byte(data, 0), substring(data FROM 2 FOR 8), data
FROM pg_logical_slot_peek_binary_changes('oracle', NULL, NULL, 'proto_version', '1', 'publication_names', %s)
"""


@pytest.fixture(scope="module")
def primary() -> Iterator[EmbeddedPostgres]:
    server = Server(new_folder(), settings={"synchronous_commit": "on", "fsync": "off"})
    server.start()
    with removed_after(server):
        yield server


@pytest.fixture(scope="module")
def follower(primary: EmbeddedPostgres) -> Iterator[EmbeddedPostgres]:
    with removed_after(make_standby(primary, keeps_slots=False)) as server:
        yield server


@pytest.fixture
def shop(primary: EmbeddedPostgres, follower: EmbeddedPostgres) -> Iterator[Database]:
    database = create_database(primary)
    database.execute("CREATE TABLE log (id bigserial PRIMARY KEY, n int)")
    database.execute("CREATE TABLE unmapped (n int)")
    database.execute(f"CREATE PUBLICATION {PUBLICATION} FOR TABLE log")
    catch_up(primary, follower)
    yield database
    drop_database(database)


class Writers:
    """Sessions that commit one small transaction after another, some of it unpublished, in parts, or prepared."""

    def __init__(self, database: Database, count: int = 4) -> None:
        self._database, self._stop = database, threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,), daemon=True) for number in range(count)]
        self.commits = 0

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, number: int) -> None:
        with psycopg.connect(self._database.url, autocommit=True) as session:
            turn = 0
            while not self._stop.is_set():
                turn += 1
                for statement in _TRANSACTIONS[(turn + number) % len(_TRANSACTIONS)]:
                    session.execute(statement.format(gid=f"{number}.{turn}"))
                self.commits += 1


_TRANSACTIONS = (
    ["INSERT INTO log (n) VALUES (1)"],
    ["INSERT INTO log (n) VALUES (2), (3)"],
    ["BEGIN; INSERT INTO log (n) VALUES (4); SAVEPOINT a; INSERT INTO log (n) VALUES (5); COMMIT"],
    ["BEGIN; INSERT INTO log (n) VALUES (6); PREPARE TRANSACTION '{gid}'", "COMMIT PREPARED '{gid}'"],
    ["BEGIN; INSERT INTO log (n) VALUES (7); ROLLBACK"],
    ["INSERT INTO unmapped VALUES (1)"],
)


def seen(database: Database, taken: slots.ExportedSnapshot) -> set[int]:
    """The ids that a snapshot shows."""
    with psycopg.connect(taken.pinned(conninfo.conninfo(database.url)), autocommit=True) as session:
        session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        session.execute(f"SET TRANSACTION SNAPSHOT '{taken.snapshot_name}'")
        return {one for (one,) in session.execute("SELECT id FROM public.log").fetchall()}


def committed(database: Database) -> list[tuple[int, set[int]]]:
    """LSN of the commit record and inserted ids of all transactions, as a slot of the test's own has them."""
    found: list[tuple[int, set[int]]] = []
    for kind, eight, data in database.execute(STREAM, (PUBLICATION,)):
        if kind == ord("B"):
            found.append((int.from_bytes(eight, "big"), set()))
        elif kind == ord("I"):  # oid, 'N', columns, then the first as text: kind, length, digits
            size = int.from_bytes(data[9:13], "big")
            found[-1][1].add(int(data[13 : 13 + size]))
    return found


_numbers = itertools.count()


def take(database: Database, follower: EmbeddedPostgres, user: str = "postgres") -> standby.Taken:
    own = database.server.url(database.name, user=user)
    url = conninfo.overlaid(own, f"postgresql://127.0.0.1:{follower.port}")
    name = f"copying_{next(_numbers)}"  # that of before may not be gone yet
    with slots.create(conninfo.replication_conninfo(own), name, temporary=True) as made:
        return standby.take(made, own, url, [PUBLICATION, "not_there"], lambda _: None)


# Slow: test_copy_from_standby.py copies under load.
@pytest.mark.slow
def test_it_shows_what_committed_before_its_lsn_under_load(shop: Database, follower: EmbeddedPostgres) -> None:
    shop.execute("SELECT pg_create_logical_replication_slot('oracle', 'pgoutput')")
    shown: list[tuple[int, set[int]]] = []
    tries = 0
    with Writers(shop) as writers:
        for _ in range(40):
            taken = take(shop, follower)
            with taken.snapshot:
                shown.append((taken.snapshot.consistent_point, seen(shop, taken.snapshot)))
            tries += taken.tries
    stream = committed(shop)
    print(f"{writers.commits} commits, {len(stream)} of them published, {tries} tries for {len(shown)} snapshots")
    assert len({frozenset(ids) for _, ids in shown}) == len(shown), "commits came between any two"
    for at, ids in shown:
        expected = set().union(*(mine for commit_lsn, mine in stream if commit_lsn < at))
        assert ids == expected, (lsn.render(at), ids ^ expected)


def test_a_role_needs_no_more_than_it_has_for_the_stream(
    shop: Database, primary: EmbeddedPostgres, follower: EmbeddedPostgres
) -> None:
    shop.execute("CREATE ROLE copier LOGIN REPLICATION")
    shop.execute("GRANT SELECT ON log TO copier")
    shop.execute("INSERT INTO log (n) VALUES (1)")
    catch_up(primary, follower)
    with take(Database(primary, shop.name), follower, user="copier").snapshot as taken:
        assert len(seen(shop, taken)) == 1


def test_a_slot_that_is_gone_meanwhile_is_not_the_sources(shop: Database) -> None:
    with slots.create(conninfo.replication_conninfo(shop.url), "kept") as made:
        shop.execute("SELECT pg_drop_replication_slot('kept')")
        with pytest.raises(SourceError) as caught:
            made.commits([PUBLICATION], 0, made.consistent_point)
        assert not isinstance(caught.value, SlotLost)


def test_an_idle_primary_keeps_nobody_waiting(shop: Database, follower: EmbeddedPostgres) -> None:
    shop.execute("INSERT INTO log (n) SELECT 0 FROM generate_series(1, 5)")
    taken = take(shop, follower)
    with taken.snapshot:
        assert (len(seen(shop, taken.snapshot)), taken.tries) == (5, 1)
    assert not shop.execute("SELECT FROM pg_replication_slots WHERE slot_name = 'copying'"), "its slot is gone"


def test_a_server_that_is_no_standby_of_it_is_refused(
    shop: Database, primary: EmbeddedPostgres, follower: EmbeddedPostgres, postgres18: EmbeddedPostgres
) -> None:
    with pytest.raises(SourceRefused, match="it is no standby"):
        take(shop, primary)
    other = create_database(postgres18, shop.name)
    with pytest.raises(SourceRefused, match="it is of cluster"):
        take(other, follower)
    with pytest.raises(SourceError, match="connection to server"):
        take(shop, Server(new_folder(), version=primary.version))


def test_a_standby_that_is_not_that_far_is_waited_for(
    shop: Database, follower: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = Database(follower, "postgres")
    there.execute("SELECT pg_wal_replay_pause()")
    try:
        monkeypatch.setattr(standby, "_STILL_S", 0.5)
        shop.execute("INSERT INTO log (n) VALUES (1)")
        with pytest.raises(SourceError, match="it replays nothing, and is") as caught:
            take(shop, follower)
        assert "pg_stat_replication" in str(caught.value.hint)
        monkeypatch.setattr(standby, "_STILL_S", 60)
        threading.Timer(1, there.execute, ("SELECT pg_wal_replay_resume()",)).start()
        taken = take(shop, follower)
        with taken.snapshot:
            assert len(seen(shop, taken.snapshot)) == 1
        assert taken.waited_s > 0.3
    finally:
        there.execute("SELECT pg_wal_replay_resume()")


def test_a_timeline_that_the_primary_has_no_part_in_is_refused(shop: Database, primary: EmbeddedPostgres) -> None:
    promoted = make_standby(primary, keeps_slots=False)
    try:
        catch_up(primary, promoted)
        promoted._run("pg_ctl", "-D", str(promoted.folder), "-w", "promote")
        with pytest.raises(SourceRefused, match="on a timeline 2"):
            take(shop, promoted)
    finally:
        promoted.stop("immediate")
        promoted.remove()


def test_clusters_are_told_apart() -> None:
    one = standby.Cluster(system_id="7", timeline=2, past="1\t0/5000000\tno recovery target specified\n")
    assert not standby.why_other(one, one)
    assert "cluster 8" in standby.why_other(one, one._replace(system_id="8"))
    twin = one._replace(past="1\t0/6000000\tno recovery target specified\n")
    assert "timeline 2" in standby.why_other(one, twin)
    behind = one._replace(timeline=1, past="")
    assert not standby.why_other(one, behind, is_far=False), "it comes to the new one by replay"
    assert standby.why_other(one, behind)


def stopped_in_a_commit(primary: Database, follower: Database, number: int) -> int:
    """Stop the replay of a standby within one commit's record; return the process, or 0 if it had passed it before.

    The commit inserts one row into `log`, and drops tables: their files are removed behind the row's being seen.
    """
    tables = 1500
    create = f"CREATE TABLE t{number}_' || i || ' ()"
    for begin in range(1, tables, 300):
        loop = f"FOR i IN {begin}..{begin + 299} LOOP EXECUTE '{create}'; END LOOP"
        primary.execute(f"DO $$ BEGIN {loop}; END $$")
    dropped = ", ".join(f"t{number}_{i}" for i in range(1, tables + 1))
    with follower.connect(autocommit=True) as probe:
        ((process,),) = probe.execute("SELECT pid FROM pg_stat_activity WHERE backend_type = 'startup'").fetchall()
        probe.execute("SELECT pg_wal_replay_pause()")
        primary.execute(f"INSERT INTO log (n) VALUES ({number}); DROP TABLE {dropped}")
        ((end,),) = primary.execute("SELECT pg_current_wal_flush_lsn()::text")
        got = "SELECT pg_last_wal_receive_lsn() >= %s::pg_lsn"
        wait_until(lambda: probe.execute(got, (end,)).fetchall() == [(True,)], "the standby has received it")
        probe.execute("SELECT pg_wal_replay_resume()")
        while not probe.execute("SELECT FROM log WHERE n = %s", (number,)).fetchall():
            pass
        os.kill(process, signal.SIGSTOP)
        if probe.execute("SELECT pg_last_wal_replay_lsn() < %s::pg_lsn", (end,)).fetchall() == [(True,)]:
            return process
        os.kill(process, signal.SIGCONT)
    return 0


def test_a_commit_that_is_seen_before_replay_has_passed_it_is_told(
    shop: Database, follower: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of a transaction are there while its tables' files are still being removed, by the same record."""
    there = Database(follower, shop.name)
    wait, commits = standby._wait, slots.ExportedSnapshot.commits
    asked: list[tuple[bool, int]] = []
    inserted: list[int] = []
    held: list[int] = []

    def waited(*arguments: Any) -> None:
        wait(*arguments)
        for number in range(10):
            inserted.append(number)
            if process := stopped_in_a_commit(shop, there, number):
                held.append(process)
                return

    def counted(self: slots.ExportedSnapshot, publications: Sequence[str], first: int, last: int) -> int:
        found = commits(self, publications, first, last)
        asked.append((first == last, found))
        go_on()
        return found

    def go_on() -> None:
        while held:
            os.kill(held.pop(), signal.SIGCONT)

    monkeypatch.setattr(standby, "_wait", waited)
    monkeypatch.setattr(slots.ExportedSnapshot, "commits", counted)
    try:
        taken = take(shop, follower)
    finally:
        go_on()
    with taken.snapshot:
        assert len(seen(shop, taken.snapshot)) == len(inserted)
    assert asked[0] == (True, 1), f"the record was being replayed: {asked}"
    assert asked[-1][1] == 0
