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
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kuvasz import lsn
from kuvasz.config.sources import Source, SourceTableSpec
from kuvasz.errors import (
    ColumnsUnclear,
    CopyNeeded,
    KuvaszError,
    LakeError,
    LostTrack,
    SchemaError,
    SourceError,
    TableError,
    TableStuck,
)
from kuvasz.evolve.column_numbers import Answer, Time, number
from kuvasz.model import Relation, ReplicaIdentity, TableName, TableType
from kuvasz.ports import Lake, Target
from kuvasz.source import conninfo, inserts, publication
from kuvasz.source.catalog import fingerprint
from kuvasz.source.catalog.look import Look, look, tables
from kuvasz.source.catalog.table import SourceTable, TableKind
from kuvasz.state.tables import State, TableStates
from kuvasz.sync.rules.containment import unforeseen
from kuvasz.sync.rules.targets import feed_of, narrowed

_log = logging.getLogger(__name__)

#: (what the map says of a table, what keeps it from following)
OnTrouble = Callable[[SourceTableSpec, TableError | TableStuck], None]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Patrol:
    """What one patrol knows of all tables."""

    found: Mapping[TableName, SourceTable]
    oids: Mapping[str, int]  #: `SourceTableSpec.key` -> OID as last seen
    looks: Mapping[int, Look]  #: before the catalog was read
    connection: Any  #: psycopg's, which is known to `source` alone


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
        on_renamed: Told of a table's new name; returns the table with it.
        is_believed: Whether a person has agreed to take a transaction's columns as they probably are.
        is_ending: Whether the source ends.
    """

    def __init__(  # noqa: PLR0913 (whom it tells)
        self,
        source: Source,
        lake: Lake,
        states: TableStates,
        *,
        target_of: Callable[[SourceTableSpec], Target],
        checked: Callable[[SourceTableSpec, SourceTable | None], SourceTable],
        on_trouble: OnTrouble,
        on_followed: Callable[[SourceTableSpec], None],
        on_renamed: Callable[[SourceTableSpec, TableName], SourceTableSpec],
        is_believed: Callable[[SourceTableSpec, int], bool] = lambda _, __: False,
        is_ending: Callable[[], bool] = lambda: False,
    ) -> None:
        self._source = source
        self._lake = lake
        self._states = states
        self._target_of = target_of
        self._checked = checked
        self._on_trouble = on_trouble
        self._on_followed = on_followed
        self._on_renamed = on_renamed
        self._is_believed = is_believed
        self._is_ending = is_ending
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
        self._publications = publications_of(source)

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
        # Whatever it is called: a name is how a table is found for the first time.
        spec = self._members.get(relation.oid) or self._spec_of.get(relation.oid) or self._specs.get(relation.table)
        if spec is None:
            return relation
        if not self._states.is_streaming(spec.identifier, self._source.name_of(spec)):
            # Its rows are not applied; when they are, the stream begins again, or they come from a log: each message
            # is for itself there, for the same words may mean something else later.
            return dataclasses.replace(relation, described_lsn=commit_lsn)
        try:
            with self._following:
                return self._follow(spec, relation, commit_lsn, xid)
        except (TableError, TableStuck) as error:
            self._looks.pop(relation.oid, None)
            self._on_trouble(spec, error)
            return relation
        except KuvaszError:
            raise
        except Exception as error:  # noqa: BLE001 (one table's, whatever it is)
            self._looks.pop(relation.oid, None)
            self._on_trouble(spec, unforeseen(self._source.name, spec, error, is_ending=self._is_ending()))
            return relation

    def patrol(self, unfit: Callable[[SourceTableSpec], bool]) -> list[str]:
        """Look at what the stream does not tell: whatever a copy depends on, of all tables at once.

        A table that streams follows what changed, as it does before a row. One that is in error is tried again when
        its source changed.

        Args:
            unfit: Whether a table was found unfit to be replicated.

        Returns:
            The tables to be looked at anew, by `SourceTableSpec.key`.

        Raises:
            SourceError: The catalog cannot be read.
            LakeError: The source ends meanwhile.
        """
        with contextlib.closing(conninfo.connect(self._source.url.get())) as connection:
            looks = dict(self._looks)  # first: what is looked at meanwhile is newer than what is found here
            round_ = _Patrol(
                found=tables(connection, [spec.table for spec in self._source.tables], self._publications),
                oids={spec.key: oid for oid, spec in tuple(self._spec_of.items())},
                looks=looks,
                connection=connection,
            )
            return [spec.key for spec in self._source.tables if self._patrol(spec, round_, is_unfit=unfit(spec))]

    def _patrol(self, spec: SourceTableSpec, round_: _Patrol, *, is_unfit: bool) -> bool:
        """Compare one table with its last look; returns whether it is to be looked at anew."""
        is_streaming = self._states.is_streaming(spec.identifier, self._source.name_of(spec))
        table, oid = round_.found.get(spec.table), round_.oids.get(spec.key, 0)
        if spec.member:
            oid = int(spec.member)
            if table is None or table.relation.oid != oid:
                return False  # who looks for members sees it go
        try:
            if not is_unfit and not is_streaming:
                state = self._states.get(spec.identifier, self._source.name_of(spec)).state
                if state is not State.ERROR or not self._has_changed(spec, table, round_):
                    return False
                self._looks.pop(oid, None)  # once for each change
                return True
            if table is None or table.relation.oid != oid:
                spec, seen = self._see(round_.connection, spec, oid, 0)
                table = seen.table
            usable = self._checked(spec, table)
            self._refuse_keyless(spec, table, oid)
            if is_streaming and not is_unfit and self._has_changed(spec, table, round_):
                self._catch_up(spec, usable, round_)
        except LakeError as error:  # the next round tries again
            _log.warning("a table's columns cannot be compared with the lake's now", extra={
                "event": "patrol_failed", "source": self._source.name, "table": str(spec.table),
                "error": str(error)})  # fmt: skip
        except TableError as error:
            self._looks.pop(oid, None)
            if not is_unfit:
                self._on_trouble(spec, error)
            return False
        except SourceError:
            raise
        except Exception as error:  # noqa: BLE001 (one table's, whatever it is)
            self._on_trouble(spec, unforeseen(self._source.name, spec, error, is_ending=self._is_ending()))
            return False
        return is_unfit

    def _has_changed(self, spec: SourceTableSpec, table: SourceTable | None, round_: _Patrol) -> bool:
        """Whether a table is not what it was when it was looked at last."""
        seen = None if table is None else round_.looks.get(table.relation.oid)
        if table is None or seen is None or seen.table is None:
            return False
        try:
            return fingerprint.of(self._checked(spec, table)) != fingerprint.of(seen.table)
        except TableError:  # it is in error for what it is
            return False

    def _catch_up(self, spec: SourceTableSpec, table: SourceTable, round_: _Patrol) -> None:
        """Have the lake follow a change that no message has told."""
        oid = table.relation.oid
        with self._following:
            seen = self._looks.get(oid)
            if seen is None or seen is not round_.looks.get(oid):
                return  # a message told meanwhile, and what was found here is older
            # Transactions that committed just before this may not be in it: the LSN stays that of the earlier look.
            self._follow_catalog(spec, dataclasses.replace(seen, table=table), seen.lsn)

    def _see(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        spec: SourceTableSpec,
        oid: int,
        xid: int,
    ) -> tuple[SourceTableSpec, Look]:
        """Look at a table under the name that it has now; return it with that.

        Raises:
            SourceError: The catalog cannot be read.
            SchemaError: Another table has its name.
        """
        seen = look(connection, spec.table, oid, xid, self._publications)
        is_free = seen.table is None or seen.table.kind is TableKind.OTHER
        if seen.moved is not None and (spec.member or is_free):
            renamed = dataclasses.replace(spec, table=seen.moved)
            spec = renamed if spec.member else self._on_renamed(spec, seen.moved)
            seen = look(connection, spec.table, oid, xid, self._publications)
        if seen.table is not None and oid not in (0, seen.table.relation.oid):
            raise replaced(self._source, spec, None if seen.moved is None else str(seen.moved))
        return spec, seen

    def _refuse_keyless(self, spec: SourceTableSpec, table: SourceTable | None, oid: int) -> None:
        """Refuse a table that may do without a key, but whose UPDATEs fail at the source while they are published."""
        seen = self._looks.get(oid)
        if table is None or table.can_update or seen is None or seen.table is None or not seen.table.can_update:
            return
        message = f"source {self._source.name}, table {spec.table}: it has lost what identifies its rows"
        raise SchemaError(f"{message}: {table.why_no_key}", hint=table.mend or None)

    def _refuse_partial(self, spec: SourceTableSpec, table: SourceTable) -> None:
        """Refuse a table whose messages lack columns that the map takes: a column list does not grow by itself."""
        taken, sent = narrowed(spec, table.relation).columns, table.relation.sent
        hidden = [] if sent is None else sorted(column.name for column in taken if column.attnum not in sent)
        if hidden:
            what = f"without its columns {', '.join(hidden)}"
            error = publication.partial(self._source.object_name, table, what)
            raise SchemaError(f"source {self._source.name}: {error.message}", hint=error.hint)

    def _follow(self, spec: SourceTableSpec, relation: Relation, commit_lsn: int, xid: int) -> Relation:
        position = self._lake.positions(spec.identifier).get(self._source.name_of(spec))
        if relation.described_lsn not in (0, commit_lsn):  # of a log: the rows are of a later transaction
            commit_lsn, xid = relation.described_lsn, 0
        # The lake has the rows of a transaction before its position. If the same message counts for later ones, then
        # nothing changed from there to the position: it means what the catalog showed then.
        is_past = position is not None and commit_lsn < position.lsn
        time = Time.at(position.lsn) if position is not None and is_past else Time.of(commit_lsn, xid)
        seen = self._looks.get(relation.oid)
        if seen is None or seen.table is None or not _shows(seen.table.relation, time, seen.lsn):
            seen = self._look(spec, relation, commit_lsn, time.xid)
        assert seen.table is not None
        known = self._lake.columns(spec.identifier, self._source.name_of(spec))
        if known is None:
            return relation  # the lake goes by names
        now = seen.table.relation
        grids = [column.attnum for column in now.columns if column.is_grid]
        answer = number(relation, known.history(now), time, grids)
        if is_past and answer.relation is None:  # in its own time it may be clear, or a person has agreed to it
            answer = number(relation, known.history(now), Time.of(commit_lsn, xid), grids)
        is_agreed = answer.likely is not None and self._is_believed(spec, commit_lsn)
        if is_past and answer.relation is None and not is_agreed:
            return relation  # mostly another message comes before any row that counts: if not, the lake refuses it
        numbered = answer.relation
        if numbered is None and self._is_believed(spec, commit_lsn):
            numbered = answer.likely
        if numbered is None:
            raise self._unclear(spec, answer, commit_lsn, seen.lsn)
        key, key_now = _key(numbered), _key(now)
        if key and key_now and key != key_now and numbered.identity is not ReplicaIdentity.FULL:
            if is_past:
                return relation  # mostly of rows that the lake has: if not, it refuses them
            names = ", ".join(relation.key)
            at = f"the transaction at {lsn.render(commit_lsn)}"
            raise self._lost_track(spec, f"{at} tells its old rows by ({names}), which is not its key")
        return numbered

    def _unclear(self, spec: SourceTableSpec, answer: Answer, commit_lsn: int, through: int) -> SchemaError:
        message = (
            f"source {self._source.name}, table {spec.table}: which of its columns the transaction at"
            f" {lsn.render(commit_lsn)} means is not proved by what the catalog showed before and after it"
        )
        table_type, target = self._target_of(spec).type, spec.identifier
        if table_type is TableType.CLONE:
            return CopyNeeded(message, hint="kuvasz copies the table again by itself")
        # Of what keeps the past, another copy would lose what happens until it is made, or even what was.
        is_likely = answer.likely is not None
        hint = "a column that was dropped in that time has to be told from one that was added: "
        if answer.likely is not None:
            names = ", ".join(f"{column.name} is number {column.attnum}" for column in answer.likely.columns)
            hint += f"its rows probably mean ({names}): kuvasz retry --table {target} takes them so; or "
        if table_type is TableType.HISTORY:
            hint += f"kuvasz resync --table {target} copies it again, and versions from before stay"
        else:
            hint += f"drop the table {target} from the lake to copy it anew"
        return ColumnsUnclear(message, hint=hint, through=through, likely=is_likely)

    def _lost_track(self, spec: SourceTableSpec, what: str) -> SchemaError:
        """Return the error of a table whose rows of one transaction cannot be taken as they are."""
        message = f"source {self._source.name}, table {spec.table}: {what}"
        table_type = self._target_of(spec).type
        if table_type is TableType.HISTORY:  # a copy would lose what happens until it is made
            hint = f"kuvasz resync --table {spec.identifier} copies it again; versions from before stay"
            return LostTrack(message, hint=hint)
        if table_type is not TableType.CLONE:  # another copy would lose what was
            return LostTrack(message, hint=f"drop the table {spec.identifier} from the lake to copy it anew")
        return CopyNeeded(message, hint="kuvasz copies the table again by itself")

    def _look(self, spec: SourceTableSpec, relation: Relation, commit_lsn: int, xid: int) -> Look:
        with contextlib.closing(conninfo.connect(self._source.url.get())) as connection:
            spec, seen = self._see(connection, spec, relation.oid, xid)
        fresh = dataclasses.replace(seen, table=self._checked(spec, seen.table))
        self._follow_catalog(spec, fresh, commit_lsn)
        return fresh

    def _follow_catalog(self, spec: SourceTableSpec, seen: Look, at: int) -> None:
        """Have the lake go to what the catalog shows."""
        assert seen.table is not None
        relation = seen.table.relation
        if not self._is_as_before(seen.table):
            self._prepare(spec, relation, at)
        self._refuse_partial(spec, seen.table)
        self._looks[relation.oid], self._spec_of[relation.oid] = seen, spec

    def _is_as_before(self, table: SourceTable) -> bool:
        """Whether the lake is where a table is: it need not be asked then, which may not answer for the moment."""
        before = self._looks.get(table.relation.oid)
        return (
            before is not None and before.table is not None and fingerprint.of(before.table) == fingerprint.of(table)
        )

    def _prepare(self, spec: SourceTableSpec, relation: Relation, at: int) -> None:
        done = self._lake.prepare(self._target_of(spec), feed_of(self._source, spec), relation, is_streaming=True)
        tell(self._source, spec, done, at)
        if done:
            self._on_followed(spec)


def _key(relation: Relation) -> set[int]:
    return {column.attnum for column in relation.columns if column.is_key}


def publications_of(source: Source) -> tuple[str, ...]:
    """Return the names of the publications that a source's stream names."""
    return source.object_name, inserts.object_name(source.object_name)


def _shows(now: Relation, time: Time, seen_lsn: int) -> bool:
    """Whether a look shows the catalog of a time, or of later."""
    is_running = now.seen is not None and time.xid in now.seen.running
    return seen_lsn >= time.to_lsn and not is_running


def replaced(source: Source, spec: SourceTableSpec, name: str | None) -> SchemaError:
    """Return the error of a table whose name another one has now; `name` is its own, None if it is gone."""
    place, resync = f"source {source.name}, table {spec.table}", f"kuvasz resync --table {spec.identifier}"
    if name is None:
        return SchemaError(
            f"{place}: it was dropped and created again", hint=f"{resync} copies the new one in its place"
        )
    message = f"{place}: it was renamed to {name}, and another table has its name"
    hint = (
        f"write {name} with `target: {spec.identifier}` into the map; or {resync} copies the other one in its place"
    )
    return SchemaError(message, hint=hint)


def tell(source: Source, spec: SourceTableSpec, done: Iterable[str], at: int) -> None:
    """Log what changed at a table and what was done about it."""
    for what in done:
        _log.info("a source table changed", extra={
            "event": "schema_changed", "source": source.name, "table": str(spec.table), "target": spec.identifier,
            "lsn": lsn.render(at), "what": what})  # fmt: skip


__all__ = ["SchemaWatch", "publications_of", "replaced", "tell"]
