"""One replication connection to a source: psycopg's COPY_BOTH, never blocking the loop.

In: libpq's connection string of a replication session (`kuvasz.source.conninfo`). Out: gulps of CopyData payloads.
Every error of the driver becomes one of ours here: `SourceError` passes and is tried again, `SourceRefused` and
`SlotLost` need a human. No text carries a password.

Commands and message flow: PostgreSQL 18 manual, section "Streaming Replication Protocol".
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import ipaddress
import json
import re
import socket
import time
from types import MappingProxyType
from typing import TYPE_CHECKING

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from kuvasz import errors, lsn
from kuvasz.decode import messages
from kuvasz.model import POSTGRES_EPOCH_US
from kuvasz.own_thread import in_thread
from kuvasz.source import conninfo as conninfos
from kuvasz.source import continuity, failure, slots
from kuvasz.source.drain import clean_pages
from kuvasz.source.drain.best import best_drain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kuvasz.model import UInt8s, UInt32s
    from kuvasz.source.drain.plain import SharedDrain

_DEFAULT_TIMEOUT_S = 10.0
_NO_OPTIONS: Mapping[str, str] = MappingProxyType({})

# The walsender looks the publication up as of the WAL it decodes, so one made later does not count.
_PUBLICATION_HINT = "it was dropped, and one made anew lacks the changes in between: "
_GONE_HINT = "the missed changes are gone: "

# A server may speak any language (`lc_messages`); the names of its functions, which come with messages, stay.
_LOOKS_PUBLICATIONS_UP = frozenset({"LoadPublications", "GetPublicationByName", "get_publication_oid"})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SystemIdentity:
    """The answer to IDENTIFY_SYSTEM."""

    system_id: str
    timeline: int
    flush_lsn: int
    database: str


class Connection:
    """A replication connection; `open` acquires, `close` releases.

    Large because it is one protocol over one socket: commands, the stream and its end share what libpq says next,
    and how its errors become ours.

    Args:
        pgconn: An established connection in non-blocking mode.
        source: Name of the source, for messages.
        compiled: What takes messages may be compiled: faster, and 70 MB.
    """

    def __init__(self, pgconn: pq.abc.PGconn, source: str, *, compiled: bool = True) -> None:
        self._pgconn = pgconn
        self._source = source
        self._drain = best_drain(pgconn, compiled=compiled)
        self._others = conninfos.OtherMessages(pgconn)
        self._loop = asyncio.get_running_loop()
        self._is_writing = False
        self._slot = ""
        self._publication = ""
        self._skipped: errors.SlotLost | None = None
        pgconn.notice_handler = self._notice

    @classmethod
    async def open(cls, conninfo: str, source: str, *, compiled: bool = True) -> Connection:
        """Connect to the first address of the connection string that answers.

        Names are resolved off the loop, each address is given ``connect_timeout`` seconds (10 if not set).

        Raises:
            SourceError: Nobody answered in time, or the server is starting up.
            SourceRefused: The server does not let us in.
        """
        reasons: list[errors.SourceError] = []
        for attempt in await _attempts(conninfo, source):
            try:
                connection = cls(await _connect(attempt, source), source, compiled=compiled)
                await connection._ask_for_raw_texts()
            except errors.SourceError as error:
                reasons.append(error)
            else:
                return connection
        raise max(reasons, key=lambda reason: reason.retry is errors.Retry.HUMAN)

    async def _ask_for_raw_texts(self) -> None:
        if conninfos.has_encoding(self._pgconn):
            return
        try:
            result = await self._execute(conninfos.RAW_TEXTS)
            if result.status != pq.ExecStatus.COMMAND_OK:
                raise self._refusal(result, f"run {conninfos.RAW_TEXTS}")
        except BaseException:
            self.close()
            raise

    @property
    def fileno(self) -> int:
        """The socket to watch."""
        return self._pgconn.socket

    @property
    def is_local(self) -> bool:
        """Whether the connection is a UNIX socket."""
        return self._pgconn.host.startswith((b"/", b"@"))

    @property
    def gathered_bytes(self) -> int:
        """Bytes of the current gulp."""
        return self._drain.bytes

    async def identify_system(self) -> SystemIdentity:
        """Ask the server who it is.

        Raises:
            SourceError: The connection broke, or it is not a replication connection.
        """
        row = await self._row("IDENTIFY_SYSTEM")
        return SystemIdentity(system_id=row[0], timeline=int(row[1]), flush_lsn=lsn.parse(row[2]), database=row[3])

    async def wal_sender_timeout_s(self) -> float:
        """Return the silence after which the server drops us; 0 if it never does."""
        return _seconds((await self._row("SHOW wal_sender_timeout"))[0])

    async def started_us(self) -> int:
        """Return when the server was started, µs since 1970 UTC."""
        return int((await self._row(f"SELECT {slots.STARTED_US}"))[0])

    async def slot(self, name: str) -> slots.SlotState | None:
        """Return a slot's state, None if there is none of that name."""
        query = f"SELECT (SELECT to_jsonb(s)::text FROM pg_replication_slots s WHERE slot_name = {_literal(name)})"
        text = (await self._row(query))[0]
        return slots.state_of(name, json.loads(text)) if text else None

    async def timeline_switches(self, timeline: int) -> dict[int, int]:
        """Return where the timelines were left that led to this one: timeline -> LSN."""
        return continuity.switches((await self._row(f"TIMELINE_HISTORY {timeline}"))[1])

    async def start_replication(
        self,
        slot: str,
        publication: str,
        *more: str,
        start_lsn: int = 0,
        options: Mapping[str, str] = _NO_OPTIONS,
    ) -> None:
        """Enter COPY_BOTH mode.

        Args:
            slot: Name of a logical slot with plug-in pgoutput.
            publication: Name of the publication.
            more: Names of further publications.
            start_lsn: From where on; the slot's confirmed position if that is later (so 0 is always right).
            options: Further options of pgoutput.

        Raises:
            SlotLost: The slot is gone or cannot go on.
            SourceError: The slot is in use by another connection.
            SourceRefused: A privilege or setting is missing.
        """
        self._slot, self._publication = slot, publication
        given = {
            "proto_version": "1",
            "publication_names": ",".join(map(_identifier, (publication, *more))),
            **options,
        }
        listed = ", ".join(f"{_identifier(name)} {_literal(value)}" for name, value in given.items())
        command = f"START_REPLICATION SLOT {_identifier(slot)} LOGICAL {lsn.render(start_lsn)} ({listed})"
        result = await self._execute(command)
        if result.status != pq.ExecStatus.COPY_BOTH:
            raise self._refusal(result, f'start replication of slot "{slot}"')

    def watch(self, told: Callable[[], None]) -> None:
        """Have a function called whenever the socket has something to read, until `unwatch`."""
        self._loop.add_reader(self.fileno, told)

    def unwatch(self) -> None:
        """Have the function called no more."""
        self._loop.remove_reader(self.fileno)

    def drain(self, limit: int) -> int:
        """Add what has arrived to the gulp, until it has about `limit` bytes; return the bytes added.

        Raises:
            SourceError: The stream ended or broke, with the server's reason.
            SlotLost: The slot was invalidated, or the publication did not exist when the changes were made.
        """
        try:
            added = self._drain.drain(limit)
            self._others.came(added)
        except psycopg.Error as error:
            raise self._broken(error) from error
        if self._skipped is not None:
            raise self._skipped
        if added == 0 and self._drain.bytes == 0 and self._drain.is_ended:
            raise self._ended()
        if added == 0 and self._drain.bytes == 0 and self._drain.is_lost:
            raise self._broken(None)
        return added

    @property
    def shared_drain(self) -> SharedDrain | None:
        """What takes messages, if that can be done together with those of other connections."""
        return self._drain.shared

    def took(self, added: int) -> None:
        """Take note of bytes that were taken together with those of other connections.

        Raises:
            SourceError, SlotLost: As of `drain`; what was taken counts for nothing.
        """
        try:
            self._others.came(added)
        except psycopg.Error as error:
            raise self._broken(error) from error
        if self._skipped is not None:
            raise self._skipped

    def gulp(self) -> tuple[UInt8s | bytearray, UInt32s]:
        """Return the payloads gathered and their lengths; valid until `clear`."""
        return self._drain.gulp()

    def clear(self) -> None:
        """Start a new gulp."""
        self._drain.clear()

    def send_status(self, *, written: int, flushed: int, is_reply_wanted: bool = False) -> None:
        """Send a standby status update; what the socket does not take at once follows when it can.

        Raises:
            SourceError: The connection is broken.
        """
        now_us = time.time_ns() // 1000 - POSTGRES_EPOCH_US
        payload = messages.status_update(
            written=written, flushed=flushed, now_us=now_us, is_reply_wanted=is_reply_wanted
        )
        try:
            self._pgconn.put_copy_data(payload)
        except psycopg.Error as error:
            raise self._broken(error) from error
        self._flush()

    async def finish(self, timeout_s: float = 2.0) -> None:
        """End the stream in good order, so that the last status update is read, then close.

        Closing a socket with unread data resets it, and the server may then never see what was sent last. So the
        copy is ended, and what still comes is thrown away until the server has ended it too. It gives the slot up
        between that and the command's end, which is waited for as well: the next stream finds the slot free.
        """
        with contextlib.suppress(psycopg.Error, errors.SourceError, TimeoutError):
            self._pgconn.put_copy_end()
            async with asyncio.timeout(timeout_s):
                while self._pgconn.flush():
                    await self._ready(is_write=True)
                await self._copied_out()
                if not self._drain.is_lost:
                    await self._next_result()
        self.close()

    async def _copied_out(self) -> None:
        """Throw away what comes until the server has ended the copy."""
        while True:
            self._others.came(self._drain.drain(1 << 20))
            if self._drain.is_ended or self._drain.is_lost:
                return
            if self._drain.bytes == 0:
                await self._ready()
            self._drain.clear()
            await asyncio.sleep(0)

    def close(self) -> None:
        """Drop the connection; without effect on a closed one."""
        if self._pgconn.status == pq.ConnStatus.OK and self._is_writing:
            self._loop.remove_writer(self._pgconn.socket)
        self._is_writing = False
        self._pgconn.finish()

    def _notice(self, result: pq.abc.PGresult) -> None:
        """Hear a notice: from version 18 on a missing publication is skipped with a warning, and its rows.

        The warning precedes the first transaction that lacks them, so nothing of it may be routed or confirmed.
        """
        text = _field(result, pq.DiagnosticField.MESSAGE_PRIMARY)
        is_unmet = _field(result, pq.DiagnosticField.SQLSTATE) == "55000"
        if is_unmet and _is_of_publication(result, self._publication):
            told = f'{self._source}: publication "{self._publication}" does not exist: {_one_line(text)}'
            self._skipped = errors.SlotLost(told, hint=_PUBLICATION_HINT + errors.start_over(self._source))

    def _flush(self) -> None:
        try:
            is_unsent = bool(self._pgconn.flush())
        except psycopg.Error:
            # The reader of the socket finds out, with the server's reason; here is nobody to tell.
            is_unsent = False
        if is_unsent and not self._is_writing:
            self._loop.add_writer(self._pgconn.socket, self._flush)
        elif self._is_writing and not is_unsent:
            self._loop.remove_writer(self._pgconn.socket)
        self._is_writing = is_unsent

    async def _row(self, command: str) -> list[str]:
        result = await self._execute(command)
        if result.status != pq.ExecStatus.TUPLES_OK or result.ntuples != 1:
            raise self._refusal(result, f"run {command}")
        return [(result.get_value(0, column) or b"").decode() for column in range(result.nfields)]

    async def _execute(self, command: str) -> pq.abc.PGresult:
        try:
            self._pgconn.send_query(command.encode())
            while self._pgconn.flush():
                await self._ready(is_write=True)
            result = await self._result()
            while result.status not in conninfos.COPYING:
                following = await self._next_result()
                if following is None or following.status in conninfos.COPYING:
                    break
                result = result if result.status == pq.ExecStatus.FATAL_ERROR else following
        except psycopg.Error as error:
            raise self._broken(error) from error
        return result

    async def _result(self) -> pq.abc.PGresult:
        result = await self._next_result()
        if result is None:
            raise errors.SourceError(
                f"{errors.place_of(self._source)}: the server gave no answer", hint="it is tried again"
            )
        return result

    async def _next_result(self) -> pq.abc.PGresult | None:
        size = conninfos.AnswerLimit(self._pgconn.socket)
        self._pgconn.consume_input()
        while self._pgconn.is_busy():
            size.came()
            await self._ready()
            self._pgconn.consume_input()
        return self._pgconn.get_result()

    async def _ready(self, *, is_write: bool = False) -> None:
        await _ready(self._pgconn.socket, is_write=is_write)

    def _ended(self) -> errors.SourceError:
        """Return why the server ended the stream, as far as it has said so: libpq would wait for the rest."""
        try:
            result = None if self._pgconn.is_busy() else self._pgconn.get_result()
        except psycopg.Error as error:
            return self._broken(error)
        if result is not None and result.status == pq.ExecStatus.FATAL_ERROR:
            return self._refusal(result, f'stream slot "{self._slot}"')
        return errors.SourceError(
            f"{errors.place_of(self._source)}: the server ended the stream", hint="kuvasz reconnects"
        )

    def _refusal(self, result: pq.abc.PGresult, doing: str) -> errors.SourceError:
        state = _field(result, pq.DiagnosticField.SQLSTATE)
        text = _field(result, pq.DiagnosticField.MESSAGE_PRIMARY) or result.get_error_message()
        told = f"{errors.place_of(self._source)}: cannot {doing}: {_one_line(text)}"
        is_of_publication = _is_of_publication(result, self._publication)
        known = _known_refusal(state, text, told, self._source, self._slot, is_of_publication=is_of_publication)
        function = _field(result, pq.DiagnosticField.SOURCE_FUNCTION)
        place, role = errors.place_of(self._source), self._pgconn.user.decode(errors="replace")
        return known or failure.of(state or None, text, place=place, doing=doing, role=role, function=function)

    def _broken(self, error: psycopg.Error | None) -> errors.SourceError:
        text = self._pgconn.get_error_message() if error is None else str(error)
        if "invalidat" in text or "administrator" in text:
            result = self._last_result()
            if result is not None:
                return self._refusal(result, f'stream slot "{self._slot}"')
        return errors.SourceError(
            f"{errors.place_of(self._source)}: connection lost: {_one_line(text)}", hint="kuvasz reconnects by itself"
        )

    def _last_result(self) -> pq.abc.PGresult | None:
        with contextlib.suppress(psycopg.Error):
            result = None if self._pgconn.is_busy() else self._pgconn.get_result()
            if result is not None and result.status == pq.ExecStatus.FATAL_ERROR:
                return result
        return None


def _is_of_publication(result: pq.abc.PGresult, name: str) -> bool:
    """Return whether a publication was not found; what stands between may leave out who says so."""
    if function := _field(result, pq.DiagnosticField.SOURCE_FUNCTION):
        return function in _LOOKS_PUBLICATIONS_UP
    text = _field(result, pq.DiagnosticField.MESSAGE_PRIMARY)
    return bool(name) and f'"{name}"' in text and "slot" not in text


def _known_refusal(
    state: str, text: str, told: str, source: str, slot: str, *, is_of_publication: bool
) -> errors.SourceError | None:
    """Return what an error of the walsender means; None if it is nothing special (manual, appendix A)."""
    if state == "42704" and is_of_publication:
        return errors.SlotLost(told, hint=_PUBLICATION_HINT + errors.start_over(source))
    if state == "42704":
        return errors.SlotLost(told, hint=f"the slot was dropped: {errors.start_over(source)}")
    if state in {"55000", "58P01"} and any(word in text for word in ("slot", "WAL", "wal", slot) if word):
        return errors.SlotLost(told, hint=_GONE_HINT + errors.start_over(source))
    if state == "55006":
        found = re.search(r"PID (\d+)", text)
        pid = found[1] if found else "…"
        # Its own walsender lives on for a moment after a copy or a lost connection.
        hint = (
            "it is kuvasz's own of a moment ago, which ends by itself: wait; if this goes on, another reader has the"
            f" slot: stop it, or SELECT pg_terminate_backend({pid})"
        )
        return errors.SourceError(told, hint=hint)
    return None


def _field(result: pq.abc.PGresult, field: pq.DiagnosticField) -> str:
    return (result.error_field(field) or b"").decode(errors="replace")


async def _connect(conninfo: str, source: str) -> pq.abc.PGconn:
    timeout_s = float(conninfo_to_dict(conninfo).get("connect_timeout") or _DEFAULT_TIMEOUT_S)
    clean_pages.make_room()
    pgconn = pq.PGconn.connect_start(conninfo.encode())
    try:
        async with asyncio.timeout(timeout_s if timeout_s > 0 else None):
            await _poll(pgconn, source)
        pgconn.nonblocking = 1
    except TimeoutError:
        pgconn.finish()
        message = f"{errors.place_of(source)}: no answer from the server within {timeout_s:g} s"
        raise errors.SourceError(message, hint="check host, port and firewall; it is tried again") from None
    except BaseException:
        pgconn.finish()
        raise
    return pgconn


async def _poll(pgconn: pq.abc.PGconn, source: str) -> None:
    """Drive the connection to its end (PostgreSQL manual, section 34.1, PQconnectPoll)."""
    while pgconn.status != pq.ConnStatus.BAD:
        status = pgconn.connect_poll()
        if status == pq.PollingStatus.OK:
            return
        if status == pq.PollingStatus.FAILED:
            break
        await _ready(pgconn.socket, is_write=status == pq.PollingStatus.WRITING)
    text = pgconn.get_error_message()
    role = pgconn.user.decode(errors="replace")
    raise failure.of(None, text, place=errors.place_of(source), doing="connect", role=role)


async def _ready(fileno: int, *, is_write: bool = False) -> None:
    """Wait until the socket can be read or written."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    add, remove = (loop.add_writer, loop.remove_writer) if is_write else (loop.add_reader, loop.remove_reader)
    add(fileno, _settle, ready)
    try:
        await ready
    finally:
        remove(fileno)


def _settle(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


async def _attempts(conninfo: str, source: str) -> Sequence[str]:
    """Return one connection string per address, in the order given.

    libpq would look names up in the middle of its polling, and keep to a dead address for as long as TCP does.
    """
    try:
        settings = conninfo_to_dict(conninfo)
    except psycopg.Error:
        # Not chained: the driver's text may quote the string, and with it the password.
        hint = "see the manual, section 34.1.1 “Connection Strings”"
        raise errors.SourceRefused(
            f"{errors.place_of(source)}: the connection string cannot be read", hint=hint
        ) from None
    hosts = str(settings.get("host") or "").split(",")
    ports = str(settings.get("port") or "").split(",")
    if settings.get("hostaddr") or hosts == [""]:
        return [conninfo]
    ports = ports * len(hosts) if len(ports) == 1 else ports
    attempts = []
    for host, port in zip(hosts, ports, strict=False):
        # Without a port of its own it is libpq's default, as for all other sessions: PGPORT, or 5432.
        given = {**settings, "host": host, "port": port or None}
        attempts += [make_conninfo("", **{**given, **address}) for address in await _addresses(host)]
    if not attempts:
        hint = "check the host in the url; it is tried again"
        raise errors.SourceError(f"{errors.place_of(source)}: no address found for host {','.join(hosts)}", hint=hint)
    return attempts


async def _addresses(host: str) -> list[dict[str, str]]:
    if not host or host.startswith(("/", "@")):
        return [{}]
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(host)
        return [{}]
    try:
        # Not the loop's: it looks up four names at a time, for all sources, and a name server may say nothing.
        looking = in_thread(lambda: socket.getaddrinfo(host, None, type=socket.SOCK_STREAM), "names")
        found = await asyncio.wrap_future(looking)
    except OSError:
        return []
    return [{"hostaddr": str(address)} for address in dict.fromkeys(entry[4][0] for entry in found)]


def _seconds(text: str) -> float:
    """Return a PostgreSQL duration as it is shown, ``1min``, in seconds (manual, section 20.1.1)."""
    match = re.fullmatch(r"(\d+)(ms|s|min|h|d|)", text)
    if match is None:
        return 60.0
    return int(match[1]) * {"ms": 0.001, "s": 1, "min": 60, "h": 3600, "d": 86400, "": 0.001}[match[2]]


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _one_line(text: str) -> str:
    return " ".join(text.split())


__all__ = ["Connection", "SystemIdentity"]
