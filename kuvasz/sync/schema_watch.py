"""Follows one source's tables while they stream: every Relation message is compared with the catalog.

The server sends a Relation message before a table's first row on a connection and after whatever touched its catalog
entry. A look at the catalog is good for all transactions that committed before it, so a backlog takes few of them.
What may be changed beside a running stream is changed in the lake at once, before the rows behind the message are
applied; for the rest the table stops following, and `SourceSync` begins it anew.

Called in the thread that routes Relation messages, or that reads a parking log, never on the event loop.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
from collections.abc import Callable, Iterable

from kuvasz import lsn
from kuvasz.config.sources import Source, SourceTableSpec
from kuvasz.errors import CopyNeeded, SchemaError, TableError
from kuvasz.evolve.numbers import number
from kuvasz.model import Relation, TableName, TableType
from kuvasz.ports import Lake, Target
from kuvasz.source import conninfo, introspect
from kuvasz.source.look import Look, look
from kuvasz.source.table import SourceTable
from kuvasz.state.tables import TableStates
from kuvasz.sync.targets import feed_of

_log = logging.getLogger(__name__)

#: (what the map says of a table, what keeps it from following)
OnTrouble = Callable[[SourceTableSpec, TableError], None]


class SchemaWatch:
    """One source's watch.

    Args:
        source: From the map.
        lake: Where the tables are.
        states: Asked whether a table follows the stream.
        target_of: What the map and a person say of a table now.
        checked: Returns a table with its key, or raises why it cannot be replicated.
        on_trouble: Told of a table that cannot go on as it is.
        on_followed: Told of a table whose changes the lake has followed.
    """

    def __init__(
        self,
        source: Source,
        lake: Lake,
        states: TableStates,
        *,
        target_of: Callable[[SourceTableSpec], Target],
        checked: Callable[[SourceTableSpec, SourceTable | None], SourceTable],
        on_trouble: OnTrouble,
        on_followed: Callable[[SourceTableSpec], None],
    ) -> None:
        self._source = source
        self._lake = lake
        self._states = states
        self._target_of = target_of
        self._checked = checked
        self._on_trouble = on_trouble
        self._on_followed = on_followed
        self._specs: dict[TableName, SourceTableSpec] = {}
        self._members: dict[int, SourceTableSpec] = {}  # by OID: whatever they are called
        self._looks: dict[int, Look] = {}
        self._spec_of: dict[int, SourceTableSpec] = {}
        self._following = threading.Lock()  #: what was parked is numbered while the stream goes on
        self.know(source)

    def know(self, source: Source) -> None:
        """Take over which tables the source has."""
        self._specs = {spec.table: spec for spec in source.tables if not spec.member and not spec.is_collapse}
        self._members = {int(spec.member): spec for spec in source.tables if spec.member}
        self._source = source

    def begin(self, tables: Iterable[tuple[SourceTableSpec, SourceTable]], at: int) -> None:
        """Take over what was seen at an LSN, and prepared in the lake."""
        for spec, table in tables:
            self._looks[table.relation.oid] = Look(lsn=at, table=table)
            self._spec_of[table.relation.oid] = spec

    def follow(self, relation: Relation, commit_lsn: int, xid: int) -> Relation:
        """Return a Relation message's relation with numbered columns; see `kuvasz.route.assembler.Follow`.

        Raises:
            SourceError: The catalog cannot be read: the stream has to begin again.
            LakeError: The lake cannot be changed now.
        """
        spec = self._specs.get(relation.table) or self._members.get(relation.oid)
        if spec is None:
            self._note_renamed(relation)
            return relation
        if not self._states.is_streaming(spec.identifier, self._source.name_of(spec)):
            return relation  # its rows are not applied; when they are, the stream begins again
        try:
            with self._following:
                return self._follow(spec, relation, commit_lsn, xid)
        except TableError as error:
            self._looks.pop(relation.oid, None)
            self._on_trouble(spec, error)
            return relation

    def patrol(self, unfit: Callable[[SourceTableSpec], bool]) -> bool:
        """Look at what the stream does not tell: tables that were dropped, replaced, or lost or got their key.

        Args:
            unfit: Whether a table was found unfit to be replicated.

        Returns:
            Whether a table that was unfit is fit now.

        Raises:
            SourceError: The catalog cannot be read.
        """
        with contextlib.closing(conninfo.connect(self._source.url.get())) as connection:
            found = introspect.load_relations(connection, [spec.table for spec in self._source.tables])
            oids = {spec.table: oid for oid, spec in self._spec_of.items()}
            is_fit = False
            for spec in self._source.tables:
                is_unfit = unfit(spec)
                if not is_unfit and not self._states.is_streaming(spec.identifier, self._source.name_of(spec)):
                    continue
                table, oid = found.get(spec.table), oids.get(spec.table, 0)
                if spec.member:
                    oid = int(spec.member)
                    if table is None or table.relation.oid != oid:
                        continue  # who looks for members sees it go
                try:
                    if table is None or table.relation.oid != oid:
                        self._refuse_moved(spec, look(connection, spec.table, oid, 0), oid)
                    self._checked(spec, table)
                    self._refuse_keyless(spec, table, oid)
                    is_fit |= is_unfit
                except TableError as error:
                    if not is_unfit:
                        self._on_trouble(spec, error)
        return is_fit

    def _refuse_moved(self, spec: SourceTableSpec, seen: Look, oid: int) -> None:
        if seen.moved is not None:
            raise renamed(self._source, spec, str(seen.moved))
        if seen.table is not None and oid not in (0, seen.table.relation.oid):
            message = f"source {self._source.name}, table {spec.table}: it was dropped and created again"
            raise SchemaError(message, hint=f"drop the table {spec.identifier} from the lake: it is copied anew")

    def _refuse_keyless(self, spec: SourceTableSpec, table: SourceTable | None, oid: int) -> None:
        """Refuse a table that may do without a key, but whose UPDATEs fail at the source while they are published."""
        seen = self._looks.get(oid)
        if table is None or table.can_update or seen is None or seen.table is None or not seen.table.can_update:
            return
        message = f"source {self._source.name}, table {spec.table}: it has lost what identifies its rows"
        raise SchemaError(f"{message}: {table.why_no_key}", hint=table.mend or None)

    def _note_renamed(self, relation: Relation) -> None:
        spec = self._spec_of.get(relation.oid)
        if spec is not None and self._states.is_streaming(spec.identifier, self._source.name_of(spec)):
            self._on_trouble(spec, renamed(self._source, spec, str(relation.table)))

    def _follow(self, spec: SourceTableSpec, relation: Relation, commit_lsn: int, xid: int) -> Relation:
        position = self._lake.positions(spec.identifier).get(self._source.name_of(spec))
        if position is not None and commit_lsn < position.lsn:
            return relation  # the lake has its rows already
        seen = self._looks.get(relation.oid)
        if seen is None or seen.table is None or commit_lsn >= seen.lsn:
            seen = self._look(spec, relation, commit_lsn, xid)
        assert seen.table is not None
        known = self._lake.columns(spec.identifier, self._source.name_of(spec))
        numbered = number(relation, seen.table.relation, known)
        if numbered is None:
            message = (
                f"source {self._source.name}, table {spec.table}: which of its columns the transaction at"
                f" {lsn.render(commit_lsn)} means cannot be told from their names"
            )
            table_type = self._target_of(spec).type
            if table_type is TableType.HISTORY:  # a copy would lose what happens until it is made
                hint = f"kuvasz resync --table {spec.identifier} copies it again; versions from before stay"
                raise SchemaError(message, hint=hint)
            if table_type is not TableType.CLONE:  # another copy would lose what was
                raise SchemaError(message, hint=f"drop the table {spec.identifier} from the lake to copy it anew")
            raise CopyNeeded(message, hint="kuvasz copies the table again by itself")
        return numbered

    def _look(self, spec: SourceTableSpec, relation: Relation, commit_lsn: int, xid: int) -> Look:
        with contextlib.closing(conninfo.connect(self._source.url.get())) as connection:
            seen = look(connection, spec.table, relation.oid, xid)
            if spec.member and seen.moved is not None:
                spec = dataclasses.replace(spec, table=seen.moved)
                seen = look(connection, spec.table, relation.oid, xid)
        self._refuse_moved(spec, seen, relation.oid)
        table = self._checked(spec, seen.table)
        target, feed = self._target_of(spec), feed_of(self._source, spec)
        done = self._lake.prepare(target, feed, table.relation, is_streaming=True)
        tell(self._source, spec, done, commit_lsn)
        if done:
            self._on_followed(spec)
        fresh = dataclasses.replace(seen, table=table)
        self._looks[relation.oid], self._spec_of[relation.oid] = fresh, spec
        return fresh


def renamed(source: Source, spec: SourceTableSpec, name: str) -> SchemaError:
    """Return the error of a table that has another name than the map says."""
    message = f"source {source.name}, table {spec.table}: it was renamed to {name}"
    hint = f"change the name in the map to {name}, with `target: {spec.identifier}`, or rename it back"
    return SchemaError(message, hint=hint)


def tell(source: Source, spec: SourceTableSpec, done: Iterable[str], at: int) -> None:
    """Log what changed at a table and what was done about it."""
    for what in done:
        _log.info("a source table changed", extra={
            "event": "schema_changed", "source": source.name, "table": str(spec.table), "target": spec.identifier,
            "lsn": lsn.render(at), "what": what})  # fmt: skip


__all__ = ["SchemaWatch", "renamed", "tell"]
