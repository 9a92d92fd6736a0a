from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from kuvasz.demo.postgres import EmbeddedPostgres
from kuvasz.errors import SlotLost, SourceError, SourceRefused
from kuvasz.source import conninfo, failure, slots
from kuvasz.source.catalog import introspect
from tests.support.message_proxy import message_proxy
from tests.support.postgres import Server, create_database
from tests.support.proxy import url_through
from tests.support.waiting import wait_until

pytestmark = pytest.mark.postgres


@pytest.fixture
def replication(source):
    return conninfo.replication_conninfo(source.url)


@pytest.fixture
def connection(source):
    with conninfo.connect(source.url) as opened:
        opened.execute("SET search_path = public")  # the tests' own statements name no schema
        yield opened


def name_of(source):
    return f"kuvasz_{source.name}"


def test_a_permanent_slot_outlives_its_snapshot(source, replication, connection):
    name = name_of(source)
    assert not slots.exists(connection, name)
    with slots.create(replication, name) as snapshot:
        assert snapshot.is_alive
        state = slots.describe(connection, name)
        assert snapshot.consistent_point == state.confirmed_flush_lsn
        with source.connect() as session:
            session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            session.execute(f"SET TRANSACTION SNAPSHOT '{snapshot.snapshot_name}'")
    assert (state.plugin, state.database, state.wal_status) == ("pgoutput", source.name, "reserved")
    assert (state.why_lost, state.why_foreign, state.is_temporary) == ("", "", False)
    assert state.retained_bytes >= 0
    assert not snapshot.is_alive
    assert slots.exists(connection, name)
    assert slots.drop(connection, name)
    assert not slots.drop(connection, name)


def test_an_answer_that_is_stalled_on_its_way_is_given_up(source, monkeypatch):
    """It would be waited for as long as for an old transaction, with nothing said of it: for ever."""
    monkeypatch.setattr(conninfo, "ANSWER_S", 1.0)
    port, name = source.server.port, name_of(source)

    def made(between):
        url = conninfo.replication_conninfo(url_through(source, between.port, "sslmode=disable"))
        with slots.create(url, name, temporary=True, look_every_s=0.1):
            pass

    with message_proxy(port) as between:
        made(between)
    answers = [number for number, kind in enumerate(between.kinds, 1) if kind == "T"]
    of_slot = answers[1]  # the first says what time it is
    with (
        message_proxy(port, "stall", of_slot) as between,
        pytest.raises(SourceError, match="the server has answered, and for 1 s nothing came of it"),
    ):
        made(between)
    assert "CREATE_REPLICATION_SLOT" in between.harmed


def test_an_old_transaction_is_waited_for_longer_than_any_answer(source, replication, monkeypatch):
    monkeypatch.setattr(conninfo, "ANSWER_S", 0.5)
    with source.connect() as old:
        old.execute("CREATE TABLE fresh ()")
        begin = time.monotonic()

        def on_waiting(_):
            if time.monotonic() - begin > 2:
                old.commit()

        with slots.create(replication, name_of(source), temporary=True, on_waiting=on_waiting, look_every_s=0.1):
            assert time.monotonic() - begin > 2


def test_a_temporary_slot_goes_with_its_snapshot(source, replication, connection):
    with slots.create(replication, name_of(source), temporary=True, failover=True) as snapshot:
        assert slots.describe(connection, name_of(source)).is_temporary
    assert not snapshot.is_alive
    wait_until(lambda: not slots.exists(connection, name_of(source)), "the slot is gone")


def test_a_failover_slot_needs_version_17(source, replication, connection):
    if source.server.version < 17:
        with pytest.raises(
            SourceRefused, match=f"cannot be a failover slot: the server has version {source.server.version}"
        ):
            slots.create(replication, name_of(source), failover=True)
        return
    with slots.create(replication, name_of(source), failover=True):
        assert slots.describe(connection, name_of(source)).is_failover


@pytest.mark.parametrize("is_given_up", [False, True])
def test_a_snapshot_is_handed_out_when_all_that_it_shows_is_visible(tmp_path, is_given_up):
    """A commit that waits for its standby is in the WAL, and so in the snapshot, and not over yet.

    For others that is a matter of microseconds; who reads then takes the transaction for an aborted one. Whoever
    does not wait for it leaves no slot behind.
    """
    settings = {"wal_level": "logical", "synchronous_commit": "on"}
    with Server(tmp_path / "server", settings=settings) as server, ThreadPoolExecutor(2) as threads:
        source = create_database(server)
        replication, told, stopped = conninfo.replication_conninfo(source.url), [], []

        def waiting(blockers):
            told.append(blockers)
            if stopped:
                raise SourceError("stopped")

        with source.connect() as first, source.connect() as second, source.connect(autocommit=True) as look:
            for session in (first, second, look):
                session.execute("SET synchronous_commit = local")
            look.execute("CREATE TABLE t (id int)")
            look.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
            look.execute("SELECT pg_reload_conf()")
            first.execute("INSERT INTO t VALUES (1)")
            created = threads.submit(slots.create, replication, "s", on_waiting=waiting, look_every_s=0.05)
            wait_until(lambda: told, "the slot waits for the first one")
            second.execute("INSERT INTO t VALUES (2)")
            first.commit()
            pids = [told[-1][0].pid]
            wait_until(lambda: told[-1] and told[-1][0].pid not in pids, "the slot waits for the second one")
            third = threads.submit(source.execute, "INSERT INTO t VALUES (3)")
            query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
            wait_until(lambda: look.execute(query).fetchone() == (1,), "the third one waits for its standby")
            pids.append(told[-1][0].pid)
            second.commit()
            wait_until(lambda: told[-1] and told[-1][0].pid not in pids, "the snapshot waits for the third one")
            assert not created.done()
            if is_given_up:
                stopped.append(True)
                with pytest.raises(SourceError, match="stopped"):
                    created.result()
            is_there = slots.exists(look, "s")
            look.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
            look.execute("SELECT pg_reload_conf()")
            third.result()
            assert is_there is not is_given_up
            if is_given_up:
                return
            with created.result() as snapshot, source.connect() as reading:
                reading.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                reading.execute(f"SET TRANSACTION SNAPSHOT '{snapshot.snapshot_name}'")
                assert reading.execute("SELECT id FROM t ORDER BY id").fetchall() == [(1,), (2,), (3,)]


def test_who_is_waited_for_is_told(source, replication, connection):
    with source.connect() as writer:
        writer.execute("CREATE TABLE t (id int)")  # has a transaction id now, and keeps it until it ends
        told = []

        def on_waiting(blockers):
            told.append(blockers)
            if len(told) == 2:
                writer.commit()

        with slots.create(replication, name_of(source), on_waiting=on_waiting, look_every_s=0.05):
            pass
        assert {blocker.pid for blocker in told[0]} == {writer.info.backend_pid}
        assert told[0][0].transaction_age_s >= 0
        assert f"pid {writer.info.backend_pid} (postgres, " in told[0][0].describe()


def test_a_prepared_transaction_is_told_by_its_name(source, replication, connection):
    with source.connect() as writer:
        writer.execute("CREATE TABLE t (id int)")
        writer.execute("PREPARE TRANSACTION 'the night run'")
    told = []

    def on_waiting(blockers):
        told.append(blockers)
        if len(told) == 2:
            connection.execute("COMMIT PREPARED 'the night run'")

    with slots.create(replication, name_of(source), on_waiting=on_waiting, look_every_s=0.05):
        pass
    assert [blocker.describe() for blocker in told[0]] == ["a prepared transaction, 'the night run'"]


def test_giving_up_while_waiting_leaves_no_slot(source, replication, connection):
    class GivenUpError(Exception):
        pass

    def give_up(blockers):
        raise GivenUpError

    with source.connect() as writer:
        writer.execute("CREATE TABLE t (id int)")
        with pytest.raises(GivenUpError):
            slots.create(replication, name_of(source), on_waiting=give_up, look_every_s=0.05)
        assert not slots.exists(connection, name_of(source))
    assert not slots.exists(connection, name_of(source))


def test_a_slot_in_use_is_told_with_its_reader_and_cannot_be_dropped(source, replication, connection):
    name = name_of(source)
    slots.create(replication, name).close()
    connection.execute("CREATE PUBLICATION p")
    reader = psycopg.pq.PGconn.connect(replication.encode())
    reader.exec_(f"START_REPLICATION SLOT {name} LOGICAL 0/0 (proto_version '1', publication_names 'p')".encode())
    try:
        assert slots.describe(connection, name).active_pid == reader.backend_pid
        with pytest.raises(SourceError, match=f"active for PID {reader.backend_pid}"):
            slots.drop(connection, name)
    finally:
        reader.finish()
    wait_until(lambda: slots.describe(connection, name).active_pid is None, "nobody uses the slot")
    with pytest.raises(SourceError, match="already exists"):
        slots.create(replication, name)


def test_a_role_without_replication_is_told_what_it_needs(source, connection):
    role = f"poor_{source.name}_{source.server.version}"
    connection.execute(f"CREATE ROLE {role} LOGIN")
    try:
        with pytest.raises(SourceRefused) as caught:
            slots.create(conninfo.replication_conninfo(source.server.url(source.name, user=role)), "s")
        assert caught.value.hint == f"the role needs: ALTER ROLE {role} REPLICATION;"
    finally:
        connection.execute(f"DROP ROLE {role}")


def test_a_snapshot_whose_session_is_ended_is_seen_dead(source, replication, connection):
    with slots.create(replication, name_of(source)) as snapshot:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE backend_type = 'walsender' AND datname = %s",
            (source.name,),
        )
        wait_until(lambda: not snapshot.is_alive, "the snapshot is gone")


def test_a_slot_of_our_name_that_is_not_ours_is_told_and_not_dropped(source, connection):
    connection.execute("SELECT pg_create_physical_replication_slot(%s, true)", (name_of(source),))
    try:
        state = slots.describe(connection, name_of(source))
        assert state.why_foreign == "it is a physical slot"
        assert state.restart_lsn > 0
        with pytest.raises(SourceRefused, match="cannot be used: it is a physical slot"):
            slots.drop(connection, name_of(source))
        assert slots.exists(connection, name_of(source))
    finally:
        connection.execute("SELECT pg_drop_replication_slot(%s)", (name_of(source),))


def test_a_slot_whose_wal_was_removed_is_lost(tmp_path):
    settings = {"max_slot_wal_keep_size": "1MB", "max_wal_size": "32MB", "min_wal_size": "32MB"}
    with Server(tmp_path / "data", settings=settings) as server:  # noqa: SIM117
        with conninfo.connect(server.url()) as connection:
            slots.create(conninfo.replication_conninfo(server.url()), "s").close()
            for _ in range(4):
                connection.execute("SELECT pg_logical_emit_message(false, 'x', 'y')")
                connection.execute("SELECT pg_switch_wal()")
            connection.execute("CHECKPOINT")
            state = slots.describe(connection, "s")
            assert state.wal_status == "lost"
            says_why = server.version >= 17
            assert state.why_lost == (
                "it was invalidated: wal_removed"
                if says_why
                else "the server removed WAL that it needed (max_slot_wal_keep_size)"
            )
            assert introspect.server(connection).max_slot_wal_keep_bytes == 1 << 20


def test_a_server_tells_its_clock_and_what_it_had_by_then(source):
    """A transaction with `synchronous_commit = off` counts before it is written."""
    with source.connect(autocommit=True) as session:
        session.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (name_of(source),))
        session.execute("CREATE TABLE items (id int)")
        session.execute("SET synchronous_commit = off")
        session.execute("INSERT INTO items VALUES (1)")
        ((at, end),) = session.execute(
            "SELECT extract(epoch FROM clock_timestamp())::float8, pg_current_wal_insert_lsn() - '0/0'::pg_lsn"
        ).fetchall()
        clock = slots.describe(session, name_of(source)).clock
    assert at <= clock.at < at + 60
    assert clock.insert_lsn >= end


def test_what_a_server_says_of_slots_is_known_in_any_language(translated: EmbeddedPostgres) -> None:
    """Its words are for people; states and the names of its functions stay untranslated."""
    database = create_database(translated)
    database.execute("CREATE ROLE visitor LOGIN")
    with conninfo.connect(database.url) as session:

        def told(kind: type[SourceError], statement: str) -> str:
            with pytest.raises(kind) as caught, failure.translated("p", "try"):
                session.execute(statement)
            assert not re.search("does not exist|in use|permission|must be", caught.value.message), "it is translated"
            return caught.value.hint or ""

        assert "the slot was dropped" in told(SlotLost, "SELECT pg_drop_replication_slot('nope')")
        session.execute("SET ROLE visitor")
        new = "SELECT pg_create_physical_replication_slot('s{}')"
        assert "ALTER ROLE … REPLICATION" in told(SourceRefused, new.format(0))
        session.execute("RESET ROLE")
        count = session.execute("SHOW max_replication_slots").fetchone()
        for number in range(int(count[0])):
            session.execute(new.format(number))
        assert "max_replication_slots" in told(SourceRefused, new.format("more"))
        with pytest.raises(SourceRefused) as caught:
            slots.create(conninfo.replication_conninfo(database.url), "one_more").__enter__()
        assert "max_replication_slots" in (caught.value.hint or "")
