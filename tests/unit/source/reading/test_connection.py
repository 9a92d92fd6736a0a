"""What libpq says becomes ours; the protocol itself is tried on servers."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from psycopg import pq

from kuvasz.errors import KuvaszError, SlotLost, SourceError, SourceRefused
from kuvasz.source.conninfo import replication_conninfo
from kuvasz.source.reading import connection as connection_module
from kuvasz.source.reading.connection import Connection

FIELDS = pq.DiagnosticField


def result(
    status: pq.ExecStatus, state: str = "", text: str = "", rows: list[list[str]] | None = None, function: str = ""
) -> Any:
    found = {FIELDS.SQLSTATE: state.encode(), FIELDS.MESSAGE_PRIMARY: text.encode(),
             FIELDS.SOURCE_FUNCTION: function.encode()}  # fmt: skip
    cells = rows or []
    return SimpleNamespace(
        status=status, ntuples=len(cells), nfields=len(cells[0]) if cells else 0, error_field=found.get,
        get_value=lambda row, column: cells[row][column].encode(), get_error_message=lambda: text,
    )  # fmt: skip


def tuples(*row: str) -> Any:
    return result(pq.ExecStatus.TUPLES_OK, rows=[list(row)])


def refusal(state: str, text: str) -> Any:
    return result(pq.ExecStatus.FATAL_ERROR, state, text)


class Server:
    """A session that answers what it is told, one answer to each command."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.waiting: list[Any] = []
        self.commands: list[str] = []
        self.arrived: list[tuple[int, bytes]] = []
        self.error: psycopg.Error | None = None
        self.message = "server closed the connection unexpectedly\n\tthis is all\n"
        self.status, self.host, self.user, self.socket = pq.ConnStatus.OK, b"db.example", b"slots", 0
        self.notice_handler: Callable[[Any], None] = lambda _: None
        self.finished = 0

    def parameter_status(self, name: bytes) -> bytes | None:
        return b"UTF8" if name == b"server_encoding" else None

    def notifies(self) -> None:
        """Nobody has notified anybody."""

    def send_query(self, command: bytes) -> None:
        self.commands.append(command.decode())
        answer = self.answers.pop(0)
        self.waiting = answer if isinstance(answer, list) else [answer]

    def get_result(self) -> Any:
        return self.waiting.pop(0) if self.waiting else None

    def get_copy_data(self, _: int) -> tuple[int, bytes]:
        if self.error is not None:
            raise self.error
        return self.arrived.pop(0) if self.arrived else (0, b"")

    def put_copy_data(self, _: bytes) -> None:
        if self.error is not None:
            raise self.error

    def consume_input(self) -> None:
        """All has come."""

    def flush(self) -> int:
        return 0

    def is_busy(self) -> int:
        return 0

    def get_error_message(self) -> str:
        return self.message

    def finish(self) -> None:
        self.finished += 1


def talk(server: Server, body: Callable[[Connection], Any]) -> Any:
    """Do something on a connection, on a loop."""

    async def run() -> Any:
        session: Any = server
        outcome = body(Connection(session, "eu"))
        return await outcome if asyncio.iscoroutine(outcome) else outcome

    return asyncio.run(run())


def streaming(server: Server, body: Callable[[Connection], Any]) -> Any:
    """The same once its stream has begun."""
    server.answers = [result(pq.ExecStatus.COPY_BOTH)]

    async def begin(found: Connection) -> Any:
        await found.start_replication("kuvasz_eu", "kuvasz_eu", "kuvasz_eu_inserts")
        outcome = body(found)
        return await outcome if asyncio.iscoroutine(outcome) else outcome

    return talk(server, begin)


@pytest.mark.parametrize("where", ["service", "PGSERVICE", "PGHOST"])
def test_a_name_that_stands_elsewhere_than_in_the_url_is_looked_up_off_the_loop(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, where: str
) -> None:
    """libpq would look it up by itself, and keep all other sources waiting for as long as a name server is silent."""
    (tmp_path / "services").write_text("[shop]\nhost=db.invalid\nport=1\n")
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
    if where != "service":
        monkeypatch.setenv(where, "db.invalid" if where == "PGHOST" else "shop")
    asked: list[tuple[str, str]] = []

    def look_up(host: str, *_: object, **__: object) -> Any:
        asked.append((host, threading.current_thread().name))
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    more = "&service=shop" if where == "service" else "&port=1" if where == "PGHOST" else ""
    given = replication_conninfo(f"postgresql:///shop?user=u{more}")
    with pytest.raises(SourceError, match=r"127\.0\.0\.1.*port 1 .*refused"):
        asyncio.run(Connection.open(given, "eu"))
    assert asked == [("db.invalid", "names")]


def test_a_server_says_who_it_is() -> None:
    server = Server(tuples("7", "3", "0/1F00", "shop"))
    found = talk(server, lambda one: one.identify_system())
    assert (found.system_id, found.timeline, found.flush_lsn, found.database) == ("7", 3, 0x1F00, "shop")
    assert server.commands == ["IDENTIFY_SYSTEM"]


@pytest.mark.parametrize(
    ("text", "seconds"), [("1min", 60), ("500ms", 0.5), ("30s", 30), ("2h", 7200), ("1d", 86400), ("0", 0), ("?", 60)]
)
def test_durations_are_in_seconds(text: str, seconds: float) -> None:
    assert talk(Server(tuples(text)), lambda one: one.wal_sender_timeout_s()) == seconds


def test_a_slot_that_is_not_there_is_none() -> None:
    server = Server(tuples(""))
    assert talk(server, lambda one: one.slot("o'hara")) is None
    assert "'o''hara'" in server.commands[0]


def test_a_stream_names_slot_and_publications_as_they_are() -> None:
    server = Server()
    streaming(server, lambda _: None)
    assert server.commands == [
        'START_REPLICATION SLOT "kuvasz_eu" LOGICAL 0/0 ("proto_version" \'1\', "publication_names"'
        ' \'"kuvasz_eu","kuvasz_eu_inserts"\')'
    ]


REFUSALS = [
    ("42704", 'publication "kuvasz_eu" does not exist', SlotLost, "it was dropped, and one made anew lacks"),
    ("42704", 'replication slot "kuvasz_eu" does not exist', SlotLost, "the slot was dropped"),
    ("55000", 'can no longer access replication slot "kuvasz_eu"', SlotLost, "the missed changes are gone"),
    ("58P01", "requested WAL segment has already been removed", SlotLost, "the missed changes are gone"),
    ("55006", 'replication slot "kuvasz_eu" is active for PID 99', SourceError, "SELECT pg_terminate_backend(99)"),
    ("42501", "permission denied to use replication slots", SourceRefused, "ALTER ROLE slots REPLICATION"),
]  # fmt: skip


@pytest.mark.parametrize(("state", "text", "kind", "hint"), REFUSALS)
def test_a_refusal_is_told_as_what_it_means(state: str, text: str, kind: type[KuvaszError], hint: str) -> None:
    server = Server(refusal(state, text))
    with pytest.raises(SourceError) as caught:
        talk(server, lambda one: one.start_replication("kuvasz_eu", "kuvasz_eu"))
    assert type(caught.value) is kind
    assert text in caught.value.message
    assert caught.value.hint is not None
    assert hint in caught.value.hint


def test_the_first_error_of_an_answer_counts() -> None:
    server = Server([refusal("42704", 'replication slot "kuvasz_eu" does not exist'), tuples("7")])
    with pytest.raises(SlotLost):
        talk(server, lambda one: one.identify_system())


def test_no_answer_is_told() -> None:
    with pytest.raises(SourceError, match="source eu: the server gave no answer"):
        talk(Server([]), lambda one: one.identify_system())


def test_messages_are_gathered_until_they_are_cleared() -> None:
    server = Server()
    server.arrived = [(3, b"one"), (5, b"three")]

    def body(found: Connection) -> tuple[int, bytes, int]:
        added = found.drain(1 << 20)
        payloads, _ = found.gulp()
        held = bytes(payloads)
        found.clear()
        return added, held, found.gathered_bytes

    assert streaming(server, body) == (8, b"onethree", 0)


def test_a_stream_that_the_server_ends_says_why() -> None:
    server = Server()
    server.arrived = [(-1, b"")]
    with pytest.raises(SourceError, match="source eu: the server ended the stream"):
        streaming(server, lambda one: one.drain(100))
    server.arrived = [(-1, b"")]

    def lost(found: Connection) -> int:
        server.waiting = [refusal("55000", 'replication slot "kuvasz_eu" was invalidated')]
        return found.drain(100)

    with pytest.raises(SlotLost):
        streaming(server, lost)


def test_a_connection_that_breaks_is_told_on_one_line() -> None:
    server = Server()

    def broken(found: Connection) -> None:
        server.error = psycopg.OperationalError("could not receive data:\n\treset by peer")
        found.drain(100)

    with pytest.raises(SourceError) as caught:
        streaming(server, broken)
    told = "source eu: connection lost: could not receive data: reset by peer"
    assert (caught.value.message, caught.value.hint) == (told, "kuvasz reconnects by itself")


def test_a_status_that_cannot_be_sent_is_told() -> None:
    server = Server()

    def broken(found: Connection) -> None:
        server.error = psycopg.OperationalError("no connection")
        found.send_status(written=1, flushed=1)

    with pytest.raises(SourceError, match="connection lost: no connection"):
        streaming(server, broken)


@pytest.mark.parametrize(
    ("state", "text", "function", "is_lost"),
    [
        ("55000", 'skipped loading publication "kuvasz_eu"', "", True),
        ("55000", "Laden der Publikation »kuvasz_eu« wird übersprungen", "LoadPublications", True),
        ("55000", 'publication "kuvasz_eu" does not exist', "", True),
        ("01000", 'a word about "kuvasz_eu"', "", False),
        ("55000", 'publication "another" does not exist', "", False),
    ],
)
def test_a_publication_that_is_skipped_ends_the_stream_before_its_rows(
    state: str, text: str, function: str, *, is_lost: bool
) -> None:
    """From version 18 on it is a warning; what follows it lacks rows."""
    server = Server()

    def warned(found: Connection) -> int:
        server.notice_handler(result(pq.ExecStatus.NONFATAL_ERROR, state, text, function=function))
        server.arrived = [(3, b"row")]
        return found.drain(100)

    if not is_lost:
        assert streaming(server, warned) == 3
        return
    with pytest.raises(SlotLost, match='eu: publication "kuvasz_eu" does not exist: '):
        streaming(server, warned)


def test_what_was_taken_with_that_of_others_counts_for_nothing_behind_a_publication_that_is_skipped() -> None:
    server = Server()

    def warned(found: Connection) -> None:
        assert found.shared_drain is None, "this server is none of libpq's"
        found.took(3)
        server.notice_handler(result(pq.ExecStatus.NONFATAL_ERROR, "55000", 'publication "kuvasz_eu" does not exist'))
        found.took(3)

    with pytest.raises(SlotLost, match='eu: publication "kuvasz_eu" does not exist: '):
        streaming(server, warned)


def test_what_was_taken_with_that_of_others_ends_a_connection_that_has_too_much_beside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def flooded(found: Connection) -> None:
        monkeypatch.setattr(found._others, "came", came)
        found.took(3)

    def came(_: int) -> None:
        raise psycopg.OperationalError("too much")

    with pytest.raises(SourceError, match="too much"):
        streaming(Server(), flooded)


def test_a_stream_that_has_ended_brings_what_it_holds_first() -> None:
    server = Server()
    server.arrived = [(3, b"row"), (-1, b"")]

    def drained(found: Connection) -> list[int]:
        server.arrived.insert(2, (-1, b""))
        return [found.drain(100), found.drain(100)]

    assert streaming(server, drained) == [3, 0]


@pytest.mark.parametrize(("host", "is_local"), [(b"/run/postgresql", True), (b"@socket", True), (b"10.0.0.1", False)])
def test_a_socket_of_this_machine_is_known(host: bytes, *, is_local: bool) -> None:
    server = Server()
    server.host = host
    assert talk(server, lambda one: one.is_local) is is_local


def test_the_end_of_a_stream_is_waited_for_and_then_closed() -> None:
    server = Server()
    server.put_copy_end = lambda: None  # type: ignore[attr-defined]
    server.arrived = [(3, b"one"), (-1, b"")]
    streaming(server, lambda one: one.finish())
    assert (server.arrived, server.finished) == ([], 1)


class Names:
    """Names that are looked up, and who answers at which address."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hosts = {"a": ["10.0.0.1", "10.0.0.2"], "b": ["10.0.0.3"]}
        self.errors: dict[str, SourceError] = {}
        self.tried: list[dict[str, str]] = []
        monkeypatch.setattr(connection_module.socket, "getaddrinfo", self._look_up)
        monkeypatch.setattr(connection_module, "_connect", self._connect)

    def _look_up(self, host: str, *_: object, **__: object) -> list[Any]:
        if host not in self.hosts:
            raise socket.gaierror("no such host")
        return [(0, 0, 0, "", (address, 0)) for address in self.hosts[host]]

    async def _connect(self, conninfo: str, _: str) -> Any:
        given = {name: str(value) for name, value in psycopg.conninfo.conninfo_to_dict(conninfo).items()}
        self.tried.append(given)
        where = given.get("hostaddr", given.get("host", ""))
        if where in self.errors:
            raise self.errors[where]
        return Server()

    def open(self, conninfo: str) -> list[tuple[str | None, str | None]]:
        asyncio.run(Connection.open(conninfo, "eu"))  # type: ignore[arg-type]
        return [(one.get("hostaddr"), one.get("port")) for one in self.tried]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    return Names(monkeypatch)


def test_each_address_is_tried_in_its_order(names: Names) -> None:
    dead = SourceError("no answer")
    names.errors = {"10.0.0.1": dead, "10.0.0.2": dead}
    assert names.open("host=a,b port=5433,5434") == [("10.0.0.1", "5433"), ("10.0.0.2", "5433"), ("10.0.0.3", "5434")]


def test_what_needs_no_looking_up_is_left_as_it_is(names: Names) -> None:
    assert names.open("host=/run/postgresql") == [(None, None)]
    names.tried.clear()
    assert names.open("host=10.9.9.9 port=1") == [(None, "1")]
    names.tried.clear()
    assert names.open("host=a hostaddr=10.8.8.8") == [("10.8.8.8", None)]


def test_the_refusal_that_a_person_must_mend_is_told_before_one_that_passes(names: Names) -> None:
    refused = SourceRefused("no pg_hba.conf entry")
    names.errors = {"10.0.0.1": refused, "10.0.0.2": SourceError("no answer")}
    with pytest.raises(SourceRefused):
        names.open("host=a")


#: More than any pool has threads: asyncio's has six, uvloop looks up four names at a time.
SILENT = 300


def test_names_that_nobody_answers_for_keep_no_other_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who owns a domain may have its name servers say nothing."""
    silence, asked = threading.Event(), threading.Semaphore(0)

    def look_up(host: str, *_: object, **__: object) -> list[Any]:
        if host == "silent":
            asked.release()
            silence.wait(60)
            raise socket.gaierror("no answer")
        return [(0, 0, 0, "", ("10.0.0.1", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)

    async def look() -> list[dict[str, str]]:
        silent = [asyncio.create_task(connection_module._addresses("silent")) for _ in range(SILENT)]
        try:
            async with asyncio.timeout(10):
                while not asked.acquire(blocking=False):  # noqa: ASYNC110 (it is told in a thread)
                    await asyncio.sleep(0.01)
                return await connection_module._addresses("well")
        finally:
            silence.set()
            await asyncio.gather(*silent)

    assert asyncio.run(look()) == [{"hostaddr": "10.0.0.1"}]


def test_a_host_that_nobody_knows_is_told(names: Names) -> None:
    with pytest.raises(SourceError, match="source eu: no address found for host nowhere"):
        names.open("host=nowhere")


def test_a_connection_string_that_cannot_be_read_is_never_quoted(names: Names) -> None:
    with pytest.raises(SourceRefused) as caught:
        names.open("host=a password='geheim")
    assert "geheim" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_url_without_a_port_leads_where_libpq_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks and copies are libpq's own connections, and PGPORT counts for these: so it does for the stream."""
    monkeypatch.setenv("PGPORT", "6543")
    for conninfo, port in (("host=127.0.0.1", "6543"), ("host=127.0.0.1 port=1", "1")):
        (attempt,) = asyncio.run(connection_module._attempts(conninfo, "eu"))
        found = {one.keyword: one.val for one in pq.Conninfo.parse(attempt.encode())}
        default = {one.keyword: one.val for one in pq.Conninfo.get_defaults()}
        assert (found[b"port"] or default[b"port"]) == port.encode()
