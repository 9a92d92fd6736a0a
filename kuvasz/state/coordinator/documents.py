"""What a cluster remembers, as named documents of JSON: read by anybody, written by who holds the lease."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kuvasz.state.coordinator.database import CoordinatorDatabase
from kuvasz.state.coordinator.lease import HELD, ClusterLease

#: One statement, for each is a round trip: nothing is done unless the lease is held.
_PUT = f"""
WITH held AS ({HELD.replace("SELECT FROM", "SELECT 1 FROM")}), dropped AS (
    DELETE FROM kuvasz.document USING held
    WHERE cluster = %(cluster)s AND kind = %(kind)s AND name = ANY(%(dropped)s)
), kept AS (
    INSERT INTO kuvasz.document (cluster, kind, name, content)
    SELECT %(cluster)s, %(kind)s, given.name, given.content::json
    FROM unnest(%(names)s::text[], %(contents)s::text[]) AS given (name, content), held
    ON CONFLICT (cluster, kind, name) DO UPDATE SET content = excluded.content
)
SELECT count(*) FROM held
"""

_TURN = """
SELECT pg_advisory_xact_lock(hashtextextended(%(cluster)s::text || '/' || %(kind)s::text || '/' || %(name)s::text, 0))
"""
_GET = "SELECT content FROM kuvasz.document WHERE cluster = %(cluster)s AND kind = %(kind)s AND name = %(name)s"
_SET = """
INSERT INTO kuvasz.document (cluster, kind, name, content) VALUES (%(cluster)s, %(kind)s, %(name)s, %(content)s::json)
ON CONFLICT (cluster, kind, name) DO UPDATE SET content = excluded.content
"""


class Documents:
    """The documents of one kind.

    Args:
        database: Where they are.
        cluster: Whose they are.
        lease: What a write names.
        kind: Their kind.
    """

    def __init__(self, database: CoordinatorDatabase, cluster: str, lease: ClusterLease, kind: str) -> None:
        self._database = database
        self._cluster = cluster
        self._lease = lease
        self._kind = kind

    @property
    def place(self) -> str:
        """Where they are, for people."""
        return f"{self._database.place}, {self._kind}"

    def all(self) -> dict[str, Any]:
        """Return all by name.

        Raises:
            StateError: They cannot be read.
        """
        query = "SELECT name, content FROM kuvasz.document WHERE cluster = %s AND kind = %s"
        with self._database.session(f"read the {self._kind}") as session:
            return {str(name): found for name, found in session.execute(query, (self._cluster, self._kind))}

    def get(self, name: str) -> Any:  # noqa: ANN401 (JSON)
        """Return one; None if there is none.

        Raises:
            StateError: It cannot be read.
        """
        query = "SELECT content FROM kuvasz.document WHERE cluster = %s AND kind = %s AND name = %s"
        with self._database.session(f"read the {self._kind}") as session:
            found = session.execute(query, (self._cluster, self._kind, name)).fetchone()
        return None if found is None else found[0]

    def put(self, documents: Mapping[str, Any]) -> None:
        """Keep documents in place of those of the same names, all or none; None takes one away.

        Raises:
            StateTaken: The lease is somebody else's by now.
            StateError: They cannot be written.
        """
        kept = {name: json.dumps(content) for name, content in documents.items() if content is not None}
        given = {
            **self._lease.claim, "kind": self._kind, "names": list(kept), "contents": list(kept.values()),
            "dropped": [name for name in documents if name not in kept],
        }  # fmt: skip
        with self._database.session(f"write the {self._kind}") as session:
            if session.execute(_PUT, given).fetchone() != (1,):
                raise self._lease.lost()

    def change(self, name: str, change: Callable[[Any], Any]) -> None:
        """Put a document in the place of one as it is by then: nobody else changes it meanwhile.

        Args:
            name: The document.
            change: From what is there, None for nothing, to what is to be; the same object if nothing changes.

        Raises:
            StateTaken: The lease is somebody else's by now.
            StateError: It cannot be read or written.
        """
        given = {**self._lease.claim, "kind": self._kind, "name": name}
        with self._database.session(f"change the {self._kind}") as session, session.transaction():
            self._lease.prove(session)
            session.execute(_TURN, given)
            row = session.execute(_GET, given).fetchone()
            before = None if row is None else row[0]
            if (after := change(before)) is not before:
                session.execute(_SET, {**given, "content": json.dumps(after)})

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Have no other process take its turn with these documents while the body runs.

        Raises:
            StateError: Another one has it, or the coordinator does not answer.
        """
        # Without the lease: who proves that keeps it from being renewed, and what is written proves it anyway.
        given = {"cluster": self._cluster, "kind": self._kind, "name": ""}
        with self._database.session(f"change the {self._kind}") as session, session.transaction():
            session.execute(_TURN, given)
            yield


__all__ = ["Documents"]
