"""How a source's url becomes connections whose sessions all print values alike.

Every part of the url's query is kept. Two lists of session settings ride in the startup packet, where they outrank
what ``ALTER ROLE … SET`` and ``ALTER DATABASE … SET`` say: manners, which the url's own ``options`` may override,
and the form of values, which it may not, because COPY and stream must print a value byte for byte alike.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import select
import socket
import sys
import time
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from typing_extensions import override

from kuvasz.errors import ConfigError, KuvaszError
from kuvasz.source import failure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from psycopg.abc import PQGen
    from psycopg.rows import TupleRow

T = TypeVar("T")

#: Sources of which is kept where their urls lead: it is asked for with each question to a source.
_URLS = 8192

#: Settings that decide how a value is printed (manual, sections 20.11.2 "Locale and Formatting" and 20.11.1).
VALUE_SETTINGS = {
    "datestyle": "ISO",
    "timezone": "UTC",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "intervalstyle": "postgres",
    "client_encoding": "UTF8",
    "xmlbinary": "base64",
    "quote_all_identifiers": "off",  # of `regclass` and the like
    "standard_conforming_strings": "on",  # of the statements that ask for them
    # A policy would drop rows from the copy without a word; with "off" it is an error (manual, section 5.9).
    "row_security": "off",
    # Names of types and tables are printed with their schema, or without, by it; and what a tenant makes in a schema
    # of the path would run as kuvasz's role (manual, section 5.10.6 "Usage Patterns"; CVE-2018-1058).
    "search_path": "pg_catalog",
}

#: Settings that a url may override.
MANNERS = {
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
    "lock_timeout": "30s",
    # Of a machine that is gone the server hears nothing: it keeps what that had, as a copy's snapshot and the WAL
    # of its slot, for two hours by default. By a socket of its own machine these say nothing.
    "tcp_keepalives_idle": "60",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
}

#: Within a transaction: how long a statement that needs a lock on one table waits for it, when that table alone is
#: tried later. Longer than `deadlock_timeout`, after which an autovacuum gives way.
LOCK_WAIT = "SET LOCAL lock_timeout = '3s'"

REPLICATION_MANNERS = {
    **MANNERS,
    # Creating a slot waits for running transactions by their locks: however long that takes.
    "lock_timeout": "0",
    "wal_sender_timeout": "60s",
}

#: libpq's parameters, where the url has none of its own (manual, section 34.1.2).
_DEFAULTS = {
    "application_name": "kuvasz",
    "connect_timeout": "10",
    "keepalives": "1",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
    # Off, so that a connection without TLS is known to be plain: `kuvasz.source.copy_out` reads its socket itself.
    "gssencmode": "disable",
}

#: Seconds that a server has for a statement about its catalog, locks included. TCP tells of one that is gone, but not
#: of one that is stopped, or behind a proxy that is silent.
ANSWER_S = 120.0

#: Bytes of one answer of a server that are taken: what a catalog of ten thousand tables says is less. It is kept
#: whole, so one without an end would take all memory.
MOST_BYTES = 128 << 20

#: Bytes that a server may send during a COPY beside what was asked for. A row that is not whole yet is part of that,
#: and has up to a gigabyte (memutils.h, MaxAllocSize).
MOST_BESIDE = (1 << 30) + MOST_BYTES

#: How many times as large the bytes of a message are with their envelopes: a keepalive has 18, and 45 by TLS.
_WRAPPED = 3

#: Times that something came between two looks at how much it was: 16 KB each, or more.
_BETWEEN_LOOKS = 64

#: The same of what comes beside: whoever drains a connection takes more at a time.
_BETWEEN_LOOKS_BESIDE = 8

#: Where a COPY begins. As long as nobody carries it out libpq has no other result, and never that there is no more.
COPYING = frozenset({pq.ExecStatus.COPY_IN, pq.ExecStatus.COPY_OUT, pq.ExecStatus.COPY_BOTH})

#: Where in `struct tcp_info` of Linux the bytes are that a connection has received (linux/tcp.h).
_RECEIVED_AT = slice(128, 136)

_ASKING = {pq.PollingStatus.READING: select.POLLIN, pq.PollingStatus.WRITING: select.POLLOUT}

#: Seconds for the server to take note that nobody waits any more.
_CANCEL_S = 5.0

#: What of a server may stand elsewhere than in a url: in the environment, or in the file of the service it names.
_WHERE = ("host", "hostaddr", "port")
_NAMED_BY = ("PGSERVICE", "PGHOST", "PGHOSTADDR")

#: libpq refuses it, and does nothing else with the parameters that it has put together.
_REFUSED = "kuvasz"

_SECRETS = frozenset({"password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key"})
_OF_A_HOST = frozenset({"host", "hostaddr", "port", "target_session_attrs", "load_balance_hosts"})
_HIDDEN = "***"
_TRANSACTION_TIMEOUT_SINCE = 170000

#: Said in a session that reads rows of a database that knows no encoding. PostgreSQL would compare each text with the
#: encoding that was asked for, and one text that does not fit would end the stream, or the copies, of its source.
RAW_TEXTS = "SET client_encoding = 'SQL_ASCII'"


def conninfo(url: str) -> str:
    """Return the libpq connection string of an ordinary session.

    Applying it to its own result changes nothing.

    Args:
        url: A connection url, or a connection string in libpq's key-value form.

    Raises:
        ConfigError: The url cannot be read.
    """
    given = _completed(_parse(url))
    # Urls of other programs ask for it: a session of that kind takes no ordinary statements. `kuvasz check` says so.
    given.pop("replication", None)
    options = _options(given.get("options"), MANNERS)
    return make_conninfo(**{**_DEFAULTS, **given, "client_encoding": "UTF8", "options": options})


def replication_conninfo(url: str, *, decoding_memory: str = "256MB") -> str:
    """Return the libpq connection string of a session that speaks the logical replication protocol.

    Args:
        url: As for `conninfo`.
        decoding_memory: ``logical_decoding_work_mem`` of the session, which every user may set: below it a
            transaction is decoded without spilling to the server's disk.

    Raises:
        ConfigError: The url cannot be read.
    """
    given = _completed(_parse(url))
    options = _options(given.get("options"), {**REPLICATION_MANNERS, "logical_decoding_work_mem": decoding_memory})
    return make_conninfo(
        **{**_DEFAULTS, **given, "client_encoding": "UTF8", "options": options, "replication": "database"}
    )


def _completed(given: dict[str, Any]) -> dict[str, Any]:
    """Return parameters with the server that libpq would find for them elsewhere.

    It would look that one's name up by itself, and a name server that says nothing would keep the whole interpreter
    waiting. What it would take it says of a connection that does not begin.
    """
    if "service" not in given and not any(map(os.environ.get, _NAMED_BY)):
        return given
    asked = make_conninfo(**{**given, "target_session_attrs": _REFUSED})
    probe = pq.PGconn.connect_start(asked.encode())
    try:
        found = {option.keyword.decode(): option.val for option in probe.info}
    finally:
        probe.finish()
    where = {name: value.decode() for name in _WHERE if (value := found.get(name))}
    return {**given, **where} if where.keys() & {"host", "hostaddr"} else given


def asks_for_replication(url: str) -> bool:
    """Return whether a url has the parameter `replication`, which is ignored."""
    return "replication" in _parse(url)


def plain_conninfo(replication: str) -> str:
    """Return the connection string of an ordinary session from that of a replication session."""
    parameters = _parse(replication)
    parameters.pop("replication", None)
    return make_conninfo(**parameters)


def pinned(conninfo: str, pgconn: pq.abc.PGconn) -> str:
    """Return `conninfo` narrowed to the one server that `pgconn` reached.

    An exported snapshot is known to the server that made it alone, so the copying sessions of a url with several
    hosts must not choose again.
    """
    parameters = _parse(conninfo)
    parameters.pop("hostaddr", None)
    host, port = pgconn.host.decode(), pgconn.port.decode()
    if host:
        parameters["host"] = host
    if host and pgconn.hostaddr and not host.startswith(("/", "@")):
        parameters["hostaddr"] = pgconn.hostaddr.decode()  # one name may stand for several addresses
    return make_conninfo(**{**parameters, "port": port})


def with_password_of(conninfo: str, url: Callable[[], str]) -> str:
    """Return `conninfo` with the password, and whatever else is secret, of a url as it is now.

    Where that cannot be had it stays as it is: the server says whether it will do.
    """
    try:
        given = _parse(url())
    except KuvaszError:
        return conninfo
    return make_conninfo(conninfo, **{name: given[name] for name in _SECRETS & given.keys()})


def has_user(url: str) -> bool:
    """Return whether a url names its user: if not, that and the password are those of the one it is laid over.

    Raises:
        ConfigError: The url cannot be read.
    """
    return "user" in _parse(url)


def overlaid(url: str, other: str) -> str:
    """Return the connection string of another server: what its url leaves out is as in the first one.

    Args:
        url: As for `conninfo`.
        other: The same. With another host, the port is its own, too; with another user, the password.

    Raises:
        ConfigError: One of them cannot be read.
    """
    given, own = _parse(url), _parse(other)
    if own.keys() & {"host", "hostaddr"}:
        given = {name: value for name, value in given.items() if name not in _OF_A_HOST}
        if "," in str(own.get("host")):
            given["target_session_attrs"] = "prefer-standby"
    if "user" in own:
        given = {name: value for name, value in given.items() if name not in _SECRETS}
    return make_conninfo(**{**given, **own})


class AnswerLimit:
    """How much a server has said in answer to one question.

    Args:
        fileno: The socket.
    """

    def __init__(self, fileno: int) -> None:
        self._fileno = fileno
        self._times = 0
        self._begin = 0

    def came(self) -> None:
        """Take note that something came.

        Raises:
            psycopg.OperationalError: It is too much. What comes over a UNIX socket, of this machine, is not counted.
        """
        if self._times % _BETWEEN_LOOKS == 0:
            now = received(self._fileno)
            self._begin = self._begin or now
            if now - self._begin > MOST_BYTES:
                raise psycopg.OperationalError(f"its answer has more than {MOST_BYTES >> 20} MB, and no end")
        self._times += 1


class OtherMessages:
    """What a server sends during a COPY beside the rows, or beside the stream.

    Notifications are kept by libpq until somebody takes them, and settings, each by its name, for as long as the
    connection lasts: a server that sends them without end would take all memory.

    Args:
        pgconn: The connection.
    """

    def __init__(self, pgconn: pq.abc.PGconn) -> None:
        self._pgconn = pgconn
        self._asked = 0  # bytes that were asked for
        self._begin = 0
        self._times = 0

    def came(self, asked: int) -> None:
        """Take note that something came.

        Args:
            asked: Bytes of it that were asked for, of messages that were whole.

        Raises:
            psycopg.OperationalError: It is too much. What comes over a UNIX socket, of this machine, is not counted.
        """
        self._asked += asked
        self._times += 1
        if self._times % _BETWEEN_LOOKS_BESIDE != 1:
            return
        while self._pgconn.notifies() is not None:
            pass
        now = received(self._pgconn.socket)
        if not self._begin:
            self._begin, self._asked = now, 0
        elif now - self._begin > MOST_BESIDE + _WRAPPED * self._asked:
            raise psycopg.OperationalError(f"it has sent {MOST_BESIDE >> 20} MB of what nobody has asked it for")


def received(fileno: int) -> int:
    """Return the bytes that a connection has received; 0 where the system does not say so."""
    if not hasattr(socket, "TCP_INFO"):
        return 0
    try:
        with socket.socket(fileno=os.dup(fileno)) as duplicate:
            facts = duplicate.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RECEIVED_AT.stop)
    except OSError:  # it is none of TCP
        return 0
    return int.from_bytes(facts[_RECEIVED_AT], sys.byteorder)


def _bounded(gen: PQGen[T], size: AnswerLimit) -> PQGen[T]:
    """Yield what a generator of psycopg waits for, and end it when too much has come."""
    try:
        waits_for = next(gen)
        while True:
            ready = yield waits_for
            size.came()
            waits_for = gen.send(ready)
    except StopIteration as end:
        found: T = end.value
        return found


class _Session(psycopg.Connection[Any]):
    """One whose server may be silent, or say more than anybody asked, and keeps nobody waiting for ever."""

    @override
    def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        try:
            bounded = _bounded(gen, AnswerLimit(self.pgconn.socket))
            return super().wait(bounded, interval, ANSWER_S if timeout is None else timeout)
        except psycopg.errors._WaitTimeout:
            # Closing the socket would leave the statement at the server, and whoever tries again would add another.
            with contextlib.suppress(psycopg.Error):
                self.cancel_safe(timeout=_CANCEL_S)
            raise psycopg.OperationalError(f"it has not answered for {timeout or ANSWER_S:g} s") from None


def connect(url: str, doing: str = "connect") -> psycopg.Connection[TupleRow]:
    """Open an ordinary session, in autocommit. A statement that takes longer than `ANSWER_S` fails.

    Args:
        url: As for `conninfo`.
        doing: What the session is for, told in errors.

    Raises:
        ConfigError: The url cannot be read.
        SourceError: The server cannot be reached.
        SourceRefused: It answers, and turns us away.
    """
    parameters = conninfo(url)
    where = location(url)
    with failure.translated(where, doing, role=_parse(url).get("user", "…")):
        try:
            # Server-side prepared statements would not survive a pooler, and nothing here runs often.
            connection = _Session.connect(parameters, autocommit=True, prepare_threshold=None)
        except psycopg.OperationalError as error:
            raise type(error)(scrub(str(error), url)) from None
        if connection.info.server_version >= _TRANSACTION_TIMEOUT_SINCE:
            connection.execute("SET transaction_timeout = 0")
    return connection


@contextlib.contextmanager
def blocking(session: psycopg.Connection[Any]) -> Iterator[pq.abc.PGconn]:
    """Give an ordinary session at libpq's level for as long as the body runs; see `connect_pq`.

    Where the database does not know the encoding of its texts, the session sends them as they are from then on.
    """
    pgconn = session.pgconn
    pgconn.nonblocking = 0
    try:
        if not has_encoding(pgconn):
            with failure.translated(place(session), "connect"):
                execute(pgconn, RAW_TEXTS)
        yield pgconn
    finally:
        if pgconn.status == pq.ConnStatus.OK:
            pgconn.nonblocking = 1


@contextlib.contextmanager
def asked(url: str, place: str) -> Iterator[psycopg.Connection[TupleRow]]:
    """Give an ordinary session to ask one of several sources: whatever comes of its answers is that one's error.

    Args:
        url: As for `conninfo`.
        place: The source, as errors name it.
    """
    with failure.contained(place), contextlib.closing(connect(url)) as connection:
        yield connection


def connect_pq(conninfo: str, doing: str = "connect") -> pq.abc.PGconn:
    """Open a session at libpq's level, for replication commands and COPY.

    Args:
        conninfo: What `conninfo` or `replication_conninfo` returned.
        doing: What the session is for, told in errors.

    Raises:
        SourceError: The server cannot be reached.
        SourceRefused: It answers, and turns us away.
    """
    # PGconn.connect would keep the whole interpreter waiting for the server's answer, other sources' clocks included.
    try:
        connection = psycopg.connect(conninfo, autocommit=True)
    except psycopg.OperationalError as error:
        role = str(_parse(conninfo).get("user", "…"))
        message = scrub(str(error), conninfo)
        raise failure.of(None, message, place=location(conninfo), doing=doing, role=role) from None
    pgconn = connection.pgconn
    del connection.pgconn  # it is the caller's to close
    pgconn.nonblocking = 0
    # As a startup option it would keep older servers from accepting the connection.
    settings = ["SET transaction_timeout = 0"] if pgconn.server_version >= _TRANSACTION_TIMEOUT_SINCE else []
    for setting in settings + ([] if has_encoding(pgconn) else [RAW_TEXTS]):
        with failure.translated(location(conninfo), doing):
            execute(pgconn, setting)
    return pgconn


def is_idle(pgconn: pq.abc.PGconn) -> bool:
    """Return whether a session between two statements still stands: a server that ends it says so, or hangs up."""
    if pgconn.status != pq.ConnStatus.OK:
        return False
    poll = select.poll()
    poll.register(pgconn.socket, select.POLLIN)
    return not poll.poll(0)


def has_encoding(pgconn: pq.abc.PGconn) -> bool:
    """Return whether the database of a session knows the encoding of its texts."""
    return pgconn.parameter_status(b"server_encoding") != b"SQL_ASCII"


def execute(pgconn: pq.abc.PGconn, statements: str, answer_s: float | None = None) -> pq.abc.PGresult:
    """Return the last result of statements on a session that blocks. A server that is silent for `ANSWER_S` fails.

    Args:
        pgconn: The session.
        statements: With semicolons between them.
        answer_s: Seconds for each, if it is to have less.

    Raises:
        psycopg.OperationalError: It does not answer, or the connection broke.
    """
    pgconn.send_query(statements.encode())
    found = None
    while (result := answer(pgconn, answer_s)) is not None:
        if found is None or found.status != pq.ExecStatus.FATAL_ERROR:
            found = result
    if found is None:
        raise psycopg.OperationalError(pgconn.get_error_message())
    return found


def answer(pgconn: pq.abc.PGconn, answer_s: float | None = None, *, may_copy: bool = False) -> pq.abc.PGresult | None:
    """Return the next result of what was sent, None when there is no more; see `execute`.

    Args:
        pgconn: The session.
        answer_s: See `execute`.
        may_copy: A COPY may begin.

    Raises:
        psycopg.OperationalError: It does not answer, the connection broke, or it begins a COPY.
    """
    answer_s = ANSWER_S if answer_s is None else answer_s
    poll, end, size = select.poll(), time.monotonic() + answer_s, AnswerLimit(pgconn.socket)
    poll.register(pgconn.socket, select.POLLIN)
    while pgconn.is_busy():
        size.came()
        if not poll.poll(max(0.0, end - time.monotonic()) * 1000):
            raise psycopg.OperationalError(f"it has not answered for {answer_s:g} s")
        pgconn.consume_input()
    result = pgconn.get_result()
    if result is not None and result.status in COPYING and not may_copy:
        raise psycopg.OperationalError("it begins a COPY that nobody has asked for")
    return result


def cancel(pgconn: pq.abc.PGconn) -> None:
    """Ask the server to give up what a session waits for; one that is silent is asked for `_CANCEL_S`.

    Raises:
        psycopg.OperationalError: It cannot be asked.
    """
    try:
        asking = pgconn.cancel_conn()
    except psycopg.NotSupportedError:  # libpq before 17: it would keep the whole interpreter waiting
        return
    try:
        asking.start()
        end = time.monotonic() + _CANCEL_S
        while (status := asking.poll()) in _ASKING:
            poll = select.poll()
            poll.register(asking.socket, _ASKING[pq.PollingStatus(status)])
            if not poll.poll(max(0.0, end - time.monotonic()) * 1000):
                raise psycopg.OperationalError("it does not answer")
    finally:
        asking.finish()


def place(connection: psycopg.Connection[Any]) -> str:
    """Return where a session leads, for messages: ``user@host:port/database``."""
    info = connection.info
    return f"{info.user}@{_bracketed(info.host)}:{info.port}/{info.dbname}"


def location(url: str) -> str:
    """Return where a url leads, for messages: ``user@host:port/database``, several hosts with commas."""
    given = _parse(url)
    user = given.get("user")
    database = given.get("dbname") or user or ""
    return f"{user}@{servers(url)}/{database}" if user else f"{servers(url)}/{database}"


@functools.lru_cache(_URLS)
def servers(url: str) -> str:
    """Return which server a url leads to, ``host:port``, several with commas."""
    given = _parse(url)
    hosts = str(given.get("host") or given.get("hostaddr") or "localhost").split(",")
    ports = str(given.get("port") or os.environ.get("PGPORT") or "5432").split(",")
    ports = ports * len(hosts) if len(ports) == 1 else ports
    return ",".join(f"{_bracketed(host)}:{port}" for host, port in zip(hosts, ports, strict=False))


@functools.lru_cache(_URLS)
def route(url: str) -> tuple[str, str]:
    """Return how a url leads to its server, without who asks, as a key; and to which database there."""
    given = _parse(url)
    user = str(given.get("user") or "")
    ways = {name: str(value) for name, value in given.items() if name not in {"user", "password", "dbname"}}
    return repr(sorted(ways.items())), str(given.get("dbname") or user)


def redact(url: str) -> str:
    """Return the url for logs: every secret replaced, everything else kept. Never raises."""
    try:
        given = _parse(url)
    except ConfigError:
        return "<a url that cannot be read>"
    return _url(given, dict.fromkeys(_SECRETS & given.keys(), _HIDDEN))


def with_references(url: str, references: Mapping[str, str]) -> str:
    """Return the url as a map has it: each secret is a reference to where it is kept instead.

    Args:
        url: As for `conninfo`; it becomes a url in any case. The parameter `replication`, which is ignored, goes.
        references: Parameter that is a secret (see `secrets_of`) -> what stands in its place, taken as it is.

    Raises:
        ConfigError: The url cannot be read.
    """
    given = _parse(url)
    given.pop("replication", None)
    return _url(given, references)


def secrets_of(url: str) -> dict[str, str]:
    """Return the secrets in a url by libpq's names of their parameters, such as ``password`` and ``sslpassword``.

    Raises:
        ConfigError: The url cannot be read.
    """
    return {name: str(value) for name, value in _parse(url).items() if name in _SECRETS and value}


def repeats_secrets(url: str) -> bool:
    """Return whether a url has a secret more than once: libpq takes the last one, and says nothing of the others."""
    account, has_account, _ = url.partition("://")[2].partition("@")
    found = ["password"] if has_account and ":" in account else []
    found += [name for name in re.findall(r"(\w+)\s*=", url) if name in _SECRETS]
    return len(found) != len(set(found))


def _url(given: Mapping[str, Any], instead: Mapping[str, str]) -> str:
    """Return parameters as a url, some of them with another value that stands there as it is."""
    kept = {name: str(value) for name, value in given.items()}
    user, password = kept.pop("user", None), kept.pop("password", None)
    account = "" if user is None and password is None else quote(user or "", safe="")
    account += "" if password is None else f":{instead.get('password', quote(password, safe=''))}"
    hosts, ports = kept.pop("host", "").split(","), kept.pop("port", "").split(",")
    ports = ports * len(hosts) if len(ports) == 1 else ports
    servers = ",".join(
        _bracketed(quote(host, safe=":.-_")) + (f":{port}" if port else "")
        for host, port in zip(hosts, ports, strict=False)
    )
    database = quote(kept.pop("dbname", ""), safe="")
    query = "&".join(f"{name}={instead.get(name, quote(value, safe='*'))}" for name, value in kept.items())
    return f"postgresql://{account}{'@' if account else ''}{servers}/{database}{'?' if query else ''}{query}"


def scrub(text: str, url: str) -> str:
    """Return a driver's message without the secrets of the url, should it quote one."""
    for name, value in _parse(url).items():
        if name in _SECRETS and value:
            text = text.replace(str(value), _HIDDEN)
    return text


def _parse(url: str) -> dict[str, Any]:
    try:
        return conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        # libpq's text quotes the part it stumbled over, which may be the password: neither told nor chained.
        raise ConfigError(
            "a source's url cannot be read as a PostgreSQL connection url",
            hint="write postgresql://user:password@host:port/database?sslmode=…; in user and password"
            " percent-encode @ : / ? # %",
        ) from None


def _options(given: object, manners: dict[str, str]) -> str:
    fixed = _flags(VALUE_SETTINGS)
    own = str(given or "")
    if own.endswith(fixed):  # this module's work already
        return own
    return " ".join(part for part in (_flags(manners), own, fixed) if part)


def _flags(settings: dict[str, str]) -> str:
    return " ".join(f"-c {name}={value}" for name, value in settings.items())


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
