"""What is found about a server that says what a test wants."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
from psycopg import pq

from kuvasz.config.secrets import SecretUrl
from kuvasz.source import conninfo, slots
from kuvasz.source.catalog import introspect
from kuvasz.source.catalog.introspect import ServerFacts
from kuvasz.source.check import server_check
from kuvasz.source.check.finding import Finding, PreflightReport, Severity
from kuvasz.source.check.server_check import ServerCheck, StreamOptions
from kuvasz.source.slots import SlotState

FACTS = ServerFacts(
    version=180001, version_text="18.1", system_identifier=7, timeline=1, wal_level="logical", max_slots=10,
    used_slots=1, max_senders=10, used_senders=1, max_slot_wal_keep_bytes=None, wal_end=7, is_in_recovery=False,
    encoding="UTF8", database="shop", role="rep", started_us=5,
)  # fmt: skip
SLOT = SlotState(
    name="kuvasz_shop", plugin="pgoutput", database="shop", is_temporary=False, active_pid=None,
    confirmed_flush_lsn=1500, restart_lsn=1000, wal_status="reserved", safe_wal_bytes=None, retained_bytes=0,
)  # fmt: skip


class Server:
    """All is well, but for what a test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.facts, self.slot = FACTS, None
        self.session: tuple[Any, ...] = (99, "UTC", "3", "ISO", "hex", "UTF8")
        self.rights: tuple[Any, ...] = ("rep", False, True, False)
        self.replicator: tuple[Any, ...] | None = None  #: the rights of another role that replicates
        self.replicating = [("rep",)]
        self.old: list[tuple[str, float]] = []
        self.origins: list[tuple[str]] = []
        self.url, self.system = "postgresql:///shop", b"7"
        self.sslmode, self.host, self.is_encrypted = b"prefer", b"/run/postgresql", False
        monkeypatch.setattr(introspect, "server", lambda _: self.facts)
        monkeypatch.setattr(slots, "describe", lambda *_: self.slot)
        monkeypatch.setattr(conninfo, "connect", lambda _: self.of_replicator())
        monkeypatch.setattr(conninfo, "connect_pq", lambda *_: SimpleNamespace(finish=lambda: None))
        monkeypatch.setattr(conninfo, "execute", lambda *_: self)
        self.status = pq.ExecStatus.TUPLES_OK

    # The answer to IDENTIFY_SYSTEM

    def get_value(self, *_: int) -> bytes:
        return self.system

    def get_error_message(self) -> str:
        return "unsupported startup parameter: replication"

    # An ordinary session

    @property
    def info(self) -> Any:
        return SimpleNamespace(user="rep", backend_pid=99, dbname="shop", host="", hostaddr="", port=5432)

    @property
    def pgconn(self) -> Any:
        option = SimpleNamespace(keyword=b"sslmode", val=self.sslmode)
        return SimpleNamespace(info=[option], hostaddr=b"", host=self.host, ssl_in_use=self.is_encrypted)

    def execute(self, query: str, parameters: Any = None) -> Any:
        answers = {server_check._SESSION: self.session, server_check._RIGHTS: self.rights}
        lists = {server_check._ORIGINS: self.origins, server_check._REPLICATING: self.replicating}
        listed = lists.get(query, self.old)
        return SimpleNamespace(fetchone=lambda: answers[query], fetchall=lambda: listed)

    def of_replicator(self) -> Any:
        answer = SimpleNamespace(fetchone=lambda: self.replicator)
        return SimpleNamespace(execute=lambda _: answer, close=lambda: None)

    def check(self, *, is_own_alone: bool = False) -> tuple[ServerCheck, dict[str, Finding]]:
        report = PreflightReport("kuvasz_shop", "shop")
        connection: Any = self
        made = ServerCheck(
            report, connection, self.url, old_transaction_s=60.0,
            wanted=StreamOptions(
                is_own_alone=is_own_alone, role=None if self.replicator is None else SecretUrl("postgresql://slots@")
            ),
        )  # fmt: skip
        made.run()
        return made, {one.check: one for one in report.findings}

    def bad(self) -> dict[str, Finding]:
        return {name: one for name, one in self.check()[1].items() if not one.ok}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    return Server(monkeypatch)


def test_on_a_good_server_nothing_is_to_be_mended(server: Server) -> None:
    made, found = server.check()
    assert {name for name, one in found.items() if not one.ok} == set()
    assert all(one.fix == "" for one in found.values())
    assert (made.is_primary, made.rights.may_replicate, made.rights.role) == (True, True, "rep")


@pytest.mark.parametrize(
    ("facts", "check", "severity", "fix"),
    [
        ({"wal_level": "replica"}, "wal_level", Severity.REQUIRED, "ALTER SYSTEM SET wal_level = 'logical';"),
        ({"version": 130009}, "version", Severity.REQUIRED, "upgrade the server"),
        ({"version": 190000}, "version", Severity.ADVICE, "use a kuvasz that knows this version"),
        ({"is_in_recovery": True}, "recovery", Severity.REQUIRED, "give the primary's url"),
        ({"used_senders": 10}, "senders", Severity.REQUIRED, "ALTER SYSTEM SET max_wal_senders = 20;"),
        ({"used_slots": 10}, "slots", Severity.REQUIRED, "ALTER SYSTEM SET max_replication_slots = 20;"),
        ({"max_slot_wal_keep_bytes": 1 << 20}, "max_slot_wal_keep_size", Severity.ADVICE, "ALTER SYSTEM"),
        ({"encoding": "SQL_ASCII"}, "encoding", Severity.ADVICE, "a text that is not UTF-8 stops its table"),
    ],
)
def test_what_a_server_lacks_is_told_with_what_mends_it(
    server: Server, facts: dict, check: str, severity: Severity, fix: str
) -> None:
    server.facts = dataclasses.replace(FACTS, **facts)
    ((name, found),) = server.bad().items()
    assert (name, found.severity) == (check, severity)
    assert found.fix.startswith(fix)


def test_the_oldest_and_the_newest_version_will_do(server: Server) -> None:
    for version in (140000, 180099):
        server.facts = dataclasses.replace(FACTS, version=version)
        assert server.bad() == {}


def test_a_pooler_is_found_by_its_sessions(server: Server) -> None:
    server.session = (98, "Europe/Prague", "3", "ISO", "hex", "UTF8")
    assert set(server.bad()) == {"direct", "session"}


def test_a_url_that_asks_for_replication_is_only_advised_against(server: Server) -> None:
    server.url = "postgresql:///shop?replication=database"
    assert server.bad()["url"].severity is Severity.ADVICE


def test_a_role_that_may_not_replicate_is_told_how(server: Server) -> None:
    server.rights = ('o"hara', False, False, True)
    made, found = server.check()
    assert found["replication_privilege"].fix.startswith('ALTER ROLE "o""hara" REPLICATION;')
    assert made.rights.may_create


@pytest.mark.parametrize(("system", "is_ok"), [(b"7", True), (b"8", False)])
def test_both_kinds_of_session_must_reach_one_server(server: Server, system: bytes, *, is_ok: bool) -> None:
    server.system = system
    assert server.check()[1]["replication"].ok is is_ok


def test_a_replication_session_that_is_refused_is_a_finding(server: Server) -> None:
    server.status = pq.ExecStatus.FATAL_ERROR
    assert "pooler" in server.bad()["replication"].fix


@pytest.mark.parametrize(
    ("facts", "told"),
    [({}, None), ({"wal_status": "lost"}, "max_slot_wal_keep_size"), ({"plugin": "wal2json"}, "wal2json"),
     ({"database": "other"}, "it is of database other")],
)  # fmt: skip
def test_a_slot_that_is_there_must_be_ours_and_whole(server: Server, facts: dict, told: str | None) -> None:
    server.slot = dataclasses.replace(SLOT, **facts)
    found = server.check()[1]["slot"]
    assert found.ok is (told is None)
    assert told is None or told in found.value


def test_a_slot_that_is_read_may_be_our_own(server: Server) -> None:
    server.slot = dataclasses.replace(SLOT, active_pid=55)
    found = server.bad()["slot_in_use"]
    assert (found.severity, "pg_terminate_backend(55)" in found.fix) == (Severity.ADVICE, True)


def test_transactions_that_a_new_slot_waits_for_are_told(server: Server) -> None:
    server.old = [("pid 1 (bo)", 61.0), ("prepared transaction 'x'", 60.5)]
    found = server.bad()["transactions"]
    assert found.value == "pid 1 (bo) since 61 s, prepared transaction 'x' since 60 s"
    assert found.severity is Severity.ADVICE


def test_a_way_that_others_can_read_is_advised_against(server: Server) -> None:
    server.host = b"db.example"
    assert server.bad()["sslmode"].severity is Severity.ADVICE
    server.sslmode, server.is_encrypted = b"verify-full", True
    assert "sslmode" not in server.bad()


def test_a_check_that_fails_in_itself_keeps_no_other_from_its_turn(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        import psycopg

        raise psycopg.OperationalError("the server closed the connection")

    monkeypatch.setattr(introspect, "server", fail)
    made, found = server.check()
    assert not found["server"].ok
    assert found["transactions"].ok
    assert made.is_primary, "nobody said otherwise"


def test_what_came_by_replication_is_left_out_of_streams_since_16(server: Server) -> None:
    server.origins = [("pg_16400",)]
    assert "origin" not in server.bad()  # nobody asks
    found = server.check(is_own_alone=True)[1]
    assert (found["version"].ok, found["origin"].ok, found["origin"].severity) == (True, False, Severity.ADVICE)
    assert found["origin"].value == "rows came from pg_16400"
    server.origins, server.facts = [], dataclasses.replace(FACTS, version=150004, version_text="15.4")
    found = server.check(is_own_alone=True)[1]
    assert (found["version"].is_blocking, found["origin"].ok) == (True, True)
    assert found["version"].fix == "upgrade the server, or leave `origin: none` out"


def test_where_another_role_replicates_that_one_needs_the_right(server: Server) -> None:
    server.rights, server.replicating = ("rep", False, False, True), []
    server.replicator = ("slots", False, True, False)
    made, found = server.check()
    assert {name for name, one in found.items() if not one.ok} == set()
    assert (found["replication_privilege"].value, found["reading_privilege"].value) == ("slots: yes", "rep: no")
    assert (made.rights.role, made.rights.may_replicate, made.rights.may_create) == ("rep", False, True)
    server.replicator = ("slots", False, False, False)
    assert server.bad()["replication_privilege"].fix.startswith('ALTER ROLE "slots" REPLICATION;')


@pytest.mark.parametrize(
    ("is_superuser", "replicating", "value", "fix"),
    [
        (False, ["rep"], "rep: yes", 'ALTER ROLE "rep" NOSUPERUSER NOREPLICATION; -- '),
        (False, ["slots"], "rep: as member of slots", 'REVOKE "slots" FROM "rep"; -- '),
        (True, ["rep", "postgres"], "rep: yes; as member of postgres",
         'ALTER ROLE "rep" NOSUPERUSER NOREPLICATION; -- '),
    ],
)  # fmt: skip
def test_who_reads_and_may_replicate_nevertheless_is_told(
    server: Server, is_superuser: bool, replicating: list[str], value: str, fix: str
) -> None:
    server.rights, server.replicator = ("rep", is_superuser, True, True), ("slots", False, True, False)
    server.replicating = [(name,) for name in replicating]
    ((name, found),) = server.bad().items()
    assert (name, found.value, found.is_blocking) == ("reading_privilege", value, False)
    assert found.fix.startswith(fix)
