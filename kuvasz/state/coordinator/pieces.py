"""Files that a cluster shares, in pieces: written by who holds the lease, in transactions of the coordinator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import BinaryIO, Final

from kuvasz.state.coordinator.database import CoordinatorDatabase
from kuvasz.state.coordinator.documents import Documents
from kuvasz.state.coordinator.lease import ClusterLease

#: Bytes of a row: the server takes each into memory a few times.
_PIECE: Final = 4 << 20

_CUT = "DELETE FROM kuvasz.piece WHERE cluster = %s AND file = %s AND at >= %s"
#: The one that lies across the cut.
_TRIM = """
UPDATE kuvasz.piece SET data = substring(data FROM 1 FOR (%s - at)::int)
WHERE cluster = %s AND file = %s AND at = (SELECT max(at) FROM kuvasz.piece WHERE cluster = %s AND file = %s)
    AND at + length(data) > %s
"""
_ADD = "INSERT INTO kuvasz.piece (cluster, file, at, data) VALUES (%s, %s, %s, %s)"
_SIZE = "SELECT coalesce(max(at + length(data)), 0) FROM kuvasz.piece WHERE cluster = %s AND file = %s"
_NEXT = "SELECT data FROM kuvasz.piece WHERE cluster = %s AND file = %s AND at = %s"


class SharedPieces:
    """The files of a cluster, by name.

    Args:
        database: Where they are.
        cluster: Whose they are.
        lease: What a write names.
    """

    def __init__(self, database: CoordinatorDatabase, cluster: str, lease: ClusterLease) -> None:
        self._database = database
        self._cluster = cluster
        self._lease = lease
        self.reaches = Documents(database, cluster, lease, "reach")  #: how far files are known to have gone

    @property
    def place(self) -> str:
        """Where they are, for people."""
        return f"{self._database.place}, cluster {self._cluster}"

    def put(self, file: str, at: int, data: bytes) -> None:
        """Have a file go on from an offset with these bytes, whatever it had there; it is durable when this returns.

        Raises:
            StateTaken: The lease is somebody else's by now.
            StateError: It cannot be written; what was there before still is.
        """
        self._put(file, at, (data[begin : begin + _PIECE] for begin in range(0, len(data), _PIECE)))

    def bring(self, file: str, stream: BinaryIO) -> None:
        """Have a file be what a stream has: all of it, or as it was before.

        Raises:
            StateTaken: The lease is somebody else's by now.
            StateError: It cannot be written; what was there before still is.
            OSError: The stream cannot be read.
        """
        self._put(file, 0, iter(lambda: stream.read(_PIECE), b""))

    def _put(self, file: str, at: int, pieces: Iterable[bytes]) -> None:
        mine = self._cluster, file
        with self._database.session("keep parked changes") as session, session.transaction():
            session.execute(_CUT, (*mine, at))
            session.execute(_TRIM, (at, *mine, *mine, at))
            for piece in pieces:
                session.execute(_ADD, (*mine, at, piece))
                at += len(piece)
            self._lease.prove(session)  # behind it: who proves it keeps it from being renewed

    def size(self, file: str) -> int:
        """Return a file's bytes; 0 if there is none.

        Raises:
            StateError: The coordinator does not answer.
        """
        with self._database.session("look for parked changes") as session:
            found = session.execute(_SIZE, (self._cluster, file)).fetchone()
        return 0 if found is None else found[0]

    def read(self, file: str) -> Iterator[bytes]:
        """Yield the pieces of a file, one after another, as far as none is missing.

        Raises:
            StateError: The coordinator does not answer.
        """
        at = 0
        while True:
            with self._database.session("read parked changes") as session:
                found = session.execute(_NEXT, (self._cluster, file, at), binary=True).fetchone()
            if found is None:
                break
            yield found[0]
            at += len(found[0])

    def remove(self, file: str) -> None:
        """Remove a file, if there is one.

        Raises:
            StateTaken: The lease is somebody else's by now.
            StateError: It cannot be removed.
        """
        with self._database.session("remove parked changes") as session, session.transaction():
            self._lease.prove(session)
            session.execute(_CUT, (self._cluster, file, 0))


__all__ = ["SharedPieces"]
