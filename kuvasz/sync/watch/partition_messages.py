"""What one source's stream tells of partitions: that one is there, has rows under its own name, or was truncated.

Called in the thread that routes Relation messages, never on the event loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kuvasz.config.sources import SourceTableSpec
from kuvasz.model import Relation, ReplicaIdentity
from kuvasz.sync.context.source_tables import SourceTables
from kuvasz.sync.context.troubles import Troubles
from kuvasz.sync.watch.partition_notes import PartitionNotes
from kuvasz.sync.watch.rewrite_watch import RewriteWatch
from kuvasz.sync.watch.schema_watch import SchemaWatch


class PartitionMessages:
    """What becomes of the messages that one source's stream has of partitions.

    Args:
        source_tables: Asked what is in the lake.
        notes: Where it is remembered.
        watch: Follows every relation.
        rewrites: Told of every TRUNCATE.
        troubles: Told of tables whose rows are told by other columns than their key.
    """

    def __init__(
        self,
        source_tables: SourceTables,
        notes: PartitionNotes,
        watch: SchemaWatch,
        rewrites: RewriteWatch,
        troubles: Troubles,
    ) -> None:
        self._source_tables = source_tables
        self._notes = notes
        self._watch = watch
        self._rewrites = rewrites
        self._troubles = troubles
        # Several of each, where a table has routes.
        self._roots: dict[int, tuple[SourceTableSpec, ...]] = {}  #: partitioned tables by OID
        self._leaves: dict[int, tuple[SourceTableSpec, ...]] = {}  #: their partitions by OID
        self._described: Relation | None = None  #: the root that the stream described last, if nothing else since

    def know_roots(self, roots: Mapping[int, tuple[SourceTableSpec, ...]]) -> None:
        """Take over which tables are partitioned, by OID."""
        for oid, specs in roots.items():
            self._roots[oid] = _with(self._roots.get(oid, ()), specs)

    def know_leaves(
        self, roots: Mapping[int, tuple[SourceTableSpec, ...]], leaves: Mapping[int, Sequence[int]]
    ) -> None:
        """Take over the partitions of some tables, in place of what was known of these: OID -> OIDs."""
        keys = {spec.key for specs in roots.values() for spec in specs}
        left = {oid: tuple(spec for spec in specs if spec.key not in keys) for oid, specs in self._leaves.items()}
        self._leaves = {oid: specs for oid, specs in left.items() if specs}
        for oid, found in leaves.items():
            self._leaves |= {leaf: _with(self._leaves.get(leaf, ()), roots[oid]) for leaf in found}

    def announce(self, oids: Sequence[int]) -> None:
        """See `SchemaWatch.announce`."""
        self._watch.announce(oids)

    def follow(self, relation: Relation, commit_lsn: int, xid: int) -> Relation:
        """Take note of partitions that the stream tells of, then follow the relation as `SchemaWatch` does.

        Under the root's identity the server describes a partition right behind its root, before its first row.

        Raises:
            SourceError: The catalog cannot be read: the stream has to begin again.
            LakeError: The lake cannot be changed now.
        """
        root, self._described = self._described, None
        if relation.oid in self._roots:
            self._described = relation
        elif root is None and relation.oid in self._leaves:
            # The publication was changed: `publish_via_partition_root` is off, or its root was taken out.
            for spec in self._leaves[relation.oid]:
                if self._is_applied_from(spec, commit_lsn):
                    self._notes.strayed(spec, relation.oid, str(relation.table), commit_lsn)
        elif root is not None and {column.name for column in root.columns} == {
            column.name for column in relation.columns
        }:
            for spec in self._roots[root.oid]:
                if self._is_applied_from(spec, commit_lsn):
                    self._notes.told(spec, relation.oid, str(relation.table), commit_lsn)
                if _tells_other_rows(root, relation):
                    self._troubles.miss_changes(spec, commit_lsn)
        return self._watch.follow(relation, commit_lsn, xid)

    def truncated(self, relation: Relation, commit_lsn: int, xid: int) -> None:
        """Take note of a TRUNCATE, which gives a table, or each of its partitions, another file.

        Raises:
            LakeError: The lake cannot be changed now.
        """
        self._rewrites.truncated(relation, xid)
        for spec in self._roots.get(relation.oid, ()):
            if self._is_applied_from(spec, commit_lsn):
                self._notes.truncated(spec, xid, commit_lsn)

    def _is_applied_from(self, spec: SourceTableSpec, commit_lsn: int) -> bool:
        """Whether a transaction's rows may not be in the target yet."""
        position = self._source_tables.position(spec)
        return position is None or commit_lsn >= position.lsn


def _tells_other_rows(root: Relation, partition: Relation) -> bool:
    """Whether old rows of a partition come without what the stream says to tell them by: the key of its root.

    Each partition logs old rows by a replica identity of its own (`kuvasz.source.catalog.key.differs`), which may be
    what it was by the next look. Without any, the source lets nobody change a row.
    """
    if partition.identity is ReplicaIdentity.FULL or not partition.key or not root.key:
        return False
    return root.identity is ReplicaIdentity.FULL or set(partition.key) != set(root.key)


def _with(known: tuple[SourceTableSpec, ...], now: tuple[SourceTableSpec, ...]) -> tuple[SourceTableSpec, ...]:
    """Return the entries of a table: those that came now, and its other routes."""
    keys = {spec.key for spec in now}
    return (*(one for one in known if one.key not in keys and one.is_beside(now[0])), *now)


__all__ = ["PartitionMessages"]
