"""A server that tells one source's transactions: the same on each connection, as pgoutput does."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from hypothesis import strategies as st

from tests.support.pgoutput import begin, commit, data, keepalive, relation, row, truncate


@dataclasses.dataclass(frozen=True)
class Change:
    """A row of a relation as it is at a version; or its TRUNCATE."""

    oid: int
    version: int = 0
    text: str = ""
    is_truncate: bool = False


@dataclasses.dataclass(frozen=True)
class Told:
    """A transaction. Its commit record begins at `lsn` and ends 8 bytes later."""

    lsn: int
    changes: tuple[Change, ...]

    @property
    def end(self) -> int:
        return self.lsn + 8


def described(oid: int, version: int) -> list[bytes]:
    """A type that is not built in comes before the relation whose column has it."""
    kind = data(b"Y" + (20_000 + version).to_bytes(4, "big") + b"public\0mood\0")
    return [*([kind] if version % 2 else []), relation(oid, name=f"t{version}")]


def connection(transactions: Sequence[Told], from_lsn: int, *, keepalives: bool = False) -> Iterator[bytes]:
    """The payloads of a connection that begins at an LSN: each relation is described before its first row."""
    known: dict[int, int] = {}
    for told in transactions:
        if told.end <= from_lsn:
            continue
        if keepalives:
            yield keepalive(told.lsn, reply=bool(told.lsn % 3))
        yield begin(told.lsn, xid=told.lsn % 1000, us=told.lsn)
        for change in told.changes:
            if known.get(change.oid) != change.version:
                known[change.oid] = change.version
                yield from described(change.oid, change.version)
            yield truncate(change.oid) if change.is_truncate else row(change.oid, change.text)
        yield commit(told.lsn)


@st.composite
def histories(draw: st.DrawFn) -> list[Told]:
    """Transactions of three relations that change their shape now and then."""
    versions, lsn, found = dict.fromkeys((1, 2, 3), 0), 100, []
    for _ in range(draw(st.integers(1, 12))):
        changes = []
        for _ in range(draw(st.integers(0, 6))):
            oid = draw(st.sampled_from((1, 2, 3)))
            if draw(st.integers(0, 5)) == 0:
                versions[oid] += 1
            is_truncate = draw(st.integers(0, 9)) == 0
            text = "" if is_truncate else draw(st.text("ab", max_size=40))
            changes.append(Change(oid, versions[oid], text, is_truncate))
        lsn += draw(st.integers(10, 30))
        found.append(Told(lsn, tuple(changes)))
    return found


__all__ = ["Change", "Told", "connection", "described", "histories"]
