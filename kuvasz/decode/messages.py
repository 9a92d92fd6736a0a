"""The messages of logical replication that come once per transaction or table, and the two of the connection.

In: the bytes of one CopyData payload (connection) or of one pgoutput message (stream). Out: frozen values. Row
messages (Insert, Update, Delete) are not parsed here: `kuvasz.route.scan` moves them as raw bytes and
`kuvasz.decode.tuples` decodes them by the column. Whatever the bytes, nothing but `DecodeError` is raised.

Sources: PostgreSQL 16 manual, section 55.4 "Streaming Replication Protocol" (XLogData, primary keepalive, standby
status update) and 55.9 "Logical Replication Message Formats" (protocol version 1). All numbers are big-endian,
all times are µs since 2000-01-01 UTC.
"""

from __future__ import annotations

import dataclasses
import struct
from typing import Final, TypeAlias

from kuvasz import errors, lsn

# Tags of what CopyData carries.
XLOGDATA: Final = ord("w")
KEEPALIVE: Final = ord("k")
# Tags of pgoutput's messages, but for those of rows (`kuvasz.decode.tuples`).
BEGIN: Final = ord("B")
COMMIT: Final = ord("C")
RELATION: Final = ord("R")
TYPE: Final = ord("Y")
TRUNCATE: Final = ord("T")
ORIGIN: Final = ord("O")
LOGICAL_MESSAGE: Final = ord("M")
INSERT: Final = ord("I")
UPDATE: Final = ord("U")
DELETE: Final = ord("D")

#: The last LSN that a lake's signed numbers have; a server that begins where PostgreSQL does never comes to it.
LAST_LSN: Final = (1 << 63) - 1

#: Commit times that are taken as they are, µs since 2000-01-01 UTC: from year 1 to the end of 9998. Others count as
#: the first or last of these: whoever owns a source may say any (manual, section 9.28.6 "Replication Management
#: Functions", ``pg_replication_origin_xact_setup``), and readers of a table that others share may know none of them.
FIRST_COMMIT_US: Final = -63_082_281_600_000_000
LAST_COMMIT_US: Final = 252_423_993_600_000_000

#: Bytes of the XLogData header before the pgoutput message: tag, start LSN, end LSN, send time.
XLOGDATA_HEADER_BYTES: Final = 25

_HINT = "the stream is damaged or speaks another protocol version; kuvasz reconnects and reads it again"
#: Of what names something: PostgreSQL's are of 63 bytes, unless it was built with others (NAMEDATALEN).
_MOST_NAME_BYTES = 4096

_STATUS = struct.Struct("!cQQQqB")
_KEEPALIVE = struct.Struct("!cQqB")
_BEGIN = struct.Struct("!cQqI")
_COMMIT = struct.Struct("!cBQQq")

# Messages of one length, tag included.
KEEPALIVE_BYTES: Final = _KEEPALIVE.size
KEEPALIVE_LSN: Final = 1  #: where its LSN is
KEEPALIVE_REPLY: Final = KEEPALIVE_BYTES - 1  #: and whether a reply is wanted
BEGIN_BYTES: Final = _BEGIN.size
COMMIT_BYTES: Final = _COMMIT.size


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Keepalive:
    """Primary keepalive: everything before `end_lsn` has been sent."""

    end_lsn: int
    sent_us: int
    is_reply_wanted: bool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """Start of a transaction's messages."""

    final_lsn: int  #: start of the commit record
    commit_us: int
    xid: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """End of a transaction's messages."""

    commit_lsn: int
    end_lsn: int  #: what may be confirmed once the transaction is durable
    commit_us: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ColumnShape:
    """One column as a Relation message carries it."""

    name: str
    type_oid: int
    typmod: int
    is_key: bool  #: part of the replica identity; every column under REPLICA IDENTITY FULL


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RelationShape:
    """A Relation message."""

    oid: int
    schema: str
    name: str
    identity: str  #: pg_class.relreplident: d, n, f or i
    columns: tuple[ColumnShape, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TypeName:
    """A Type message: sent before the Relation message whose column has a type that is not built in."""

    oid: int
    schema: str
    name: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Truncate:
    """A TRUNCATE of one or more relations."""

    relation_oids: tuple[int, ...]
    is_cascade: bool
    is_restart_identity: bool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationOrigin:
    """The replication origin of the transaction it is sent in."""

    commit_lsn: int
    name: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LogicalMessage:
    """What ``pg_logical_emit_message`` wrote."""

    is_transactional: bool
    message_lsn: int
    prefix: str
    content: bytes


Message: TypeAlias = Begin | Commit | RelationShape | TypeName | Truncate | ReplicationOrigin | LogicalMessage


def parse(data: bytes) -> Message:
    """Return one pgoutput message other than a row message.

    Args:
        data: The message from its tag byte on, without the XLogData header.

    Raises:
        DecodeError: The bytes are not such a message: unknown tag, too short, or longer than the message says.
    """
    body = _Body(data)
    match body.read(1):
        case b"B":
            message: Message = _begin(data)
        case b"C":
            message = _commit(data)
        case b"R":
            message = body.finish(_relation(body))
        case b"Y":
            message = body.finish(TypeName(oid=body.uint32(), schema=_schema(body), name=body.name()))
        case b"T":
            message = body.finish(_truncate(body))
        case b"O":
            message = body.finish(ReplicationOrigin(commit_lsn=body.uint64(), name=body.text()))
        case b"M":
            message = body.finish(_logical_message(body))
        case tag:
            raise errors.DecodeError(f"unexpected replication message with tag {tag!r}", hint=_HINT)
    return message


def parse_keepalive(data: bytes) -> Keepalive:
    """Return a primary keepalive, from its tag byte ``k`` on.

    Raises:
        DecodeError: The bytes are not a primary keepalive.
    """
    if len(data) != _KEEPALIVE.size or data[:1] != b"k":
        raise errors.DecodeError(f"not a keepalive: {bytes(data[:32])!r} ({len(data)} bytes)", hint=_HINT)
    _, end_lsn, sent_us, reply = _KEEPALIVE.unpack(data)
    return Keepalive(end_lsn=end_lsn, sent_us=sent_us, is_reply_wanted=reply == 1)


def status_update(*, written: int, flushed: int, now_us: int, is_reply_wanted: bool = False) -> bytes:
    """Return the bytes of a standby status update.

    Args:
        written: LSN up to which the stream was received. The server uses it for its statistics only.
        flushed: LSN that may be forgotten by the source: `Progress.confirmable`. 0 confirms nothing.
        now_us: Time on this side, µs since 2000-01-01 UTC.
        is_reply_wanted: Ask the server for a keepalive at once.
    """
    return _STATUS.pack(b"r", max(written, flushed), flushed, flushed, now_us, is_reply_wanted)


def _begin(data: bytes) -> Begin:
    if len(data) != _BEGIN.size:
        raise errors.DecodeError(f"Begin message has {len(data)} bytes, not {_BEGIN.size}", hint=_HINT)
    _, final_lsn, commit_us, xid = _BEGIN.unpack(data)
    return Begin(final_lsn=final_lsn, commit_us=commit_us, xid=xid)


def _commit(data: bytes) -> Commit:
    if len(data) != _COMMIT.size:
        raise errors.DecodeError(f"Commit message has {len(data)} bytes, not {_COMMIT.size}", hint=_HINT)
    _, _, commit_lsn, end_lsn, commit_us = _COMMIT.unpack(data)
    if end_lsn < commit_lsn:
        place = f"{lsn.render(end_lsn)} before its start {lsn.render(commit_lsn)}"
        raise errors.DecodeError(f"Commit message ends at {place}", hint=_HINT)
    return Commit(commit_lsn=commit_lsn, end_lsn=end_lsn, commit_us=commit_us)


def _relation(body: _Body) -> RelationShape:
    oid, schema, name = body.uint32(), _schema(body), body.name()
    identity = body.read(1).decode("latin-1")
    if identity not in "dnfi":
        raise errors.DecodeError(f"relation {schema}.{name} has replica identity {identity!r}", hint=_HINT)
    columns = tuple(_column(body) for _ in range(body.uint16()))
    return RelationShape(oid=oid, schema=schema, name=name, identity=identity, columns=columns)


def _column(body: _Body) -> ColumnShape:
    flags = body.read(1)[0]
    return ColumnShape(is_key=bool(flags & 1), name=body.name(), type_oid=body.uint32(), typmod=body.int32())


def _truncate(body: _Body) -> Truncate:
    count, options = body.uint32(), body.read(1)[0]
    body.expect(count * 4)
    oids = tuple(body.uint32() for _ in range(count))
    return Truncate(relation_oids=oids, is_cascade=bool(options & 1), is_restart_identity=bool(options & 2))


def _logical_message(body: _Body) -> LogicalMessage:
    flags, message_lsn, prefix = body.read(1)[0], body.uint64(), body.text()
    content = body.read(body.uint32())
    return LogicalMessage(is_transactional=bool(flags & 1), message_lsn=message_lsn, prefix=prefix, content=content)


def _schema(body: _Body) -> str:
    # "Namespace (empty string for pg_catalog)", manual section 55.9.
    return body.name() or "pg_catalog"


class _Body:
    """A cursor over a message that never reads outside it."""

    __slots__ = ("_data", "_offset")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._offset = 0

    def expect(self, size: int) -> None:
        """Raise unless `size` more bytes are there."""
        if self._offset + size > len(self._data):
            raise errors.DecodeError(
                f"replication message {bytes(self._data[:1])!r} ends after {len(self._data)} bytes,"
                f" {size} more were due at byte {self._offset}",
                hint=_HINT,
            )

    def read(self, size: int) -> bytes:
        """Return the next `size` bytes."""
        self.expect(size)
        self._offset += size
        return bytes(self._data[self._offset - size : self._offset])

    def uint16(self) -> int:
        return int.from_bytes(self.read(2), "big")

    def uint32(self) -> int:
        return int.from_bytes(self.read(4), "big")

    def int32(self) -> int:
        return int.from_bytes(self.read(4), "big", signed=True)

    def uint64(self) -> int:
        return int.from_bytes(self.read(8), "big")

    def text(self) -> str:
        """Return the next null-terminated string."""
        end = self._data.find(b"\0", self._offset)
        if end < 0:
            raise errors.DecodeError(f"unterminated text at byte {self._offset} of a message", hint=_HINT)
        raw = self.read(end - self._offset)
        self._offset += 1
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            hint = "kuvasz reads with client_encoding=UTF8; a SQL_ASCII database may hold other names: rename them"
            raise errors.DecodeError(f"name {raw!r} is not UTF-8", hint=hint) from error

    def name(self) -> str:
        """Return the next null-terminated string, which names something and is kept for as long as that is known."""
        begin = self._offset
        found = self.text()
        if self._offset - begin > _MOST_NAME_BYTES:
            raise errors.DecodeError(f"a name of {self._offset - begin - 1} bytes", hint=_HINT)
        return found

    def finish(self, message: Message) -> Message:
        """Return the message if nothing is left over."""
        rest = len(self._data) - self._offset
        if rest:
            raise errors.DecodeError(f"{rest} bytes left over after {type(message).__name__} message", hint=_HINT)
        return message


__all__ = [
    "BEGIN",
    "BEGIN_BYTES",
    "COMMIT",
    "COMMIT_BYTES",
    "DELETE",
    "FIRST_COMMIT_US",
    "INSERT",
    "KEEPALIVE",
    "KEEPALIVE_BYTES",
    "KEEPALIVE_LSN",
    "KEEPALIVE_REPLY",
    "LAST_COMMIT_US",
    "LAST_LSN",
    "LOGICAL_MESSAGE",
    "ORIGIN",
    "RELATION",
    "TRUNCATE",
    "TYPE",
    "UPDATE",
    "XLOGDATA",
    "XLOGDATA_HEADER_BYTES",
    "Begin",
    "ColumnShape",
    "Commit",
    "Keepalive",
    "LogicalMessage",
    "Message",
    "RelationShape",
    "ReplicationOrigin",
    "Truncate",
    "TypeName",
    "parse",
    "parse_keepalive",
    "status_update",
]
