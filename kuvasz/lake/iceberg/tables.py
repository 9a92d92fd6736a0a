"""The lake's tables as they are loaded, made where they are missing, and tried again after they failed."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

from kuvasz.config import names
from kuvasz.errors import KuvaszError, LakeError, LateCommit, TableGone, TableStuck, place_of
from kuvasz.index.kept import IndexPlace
from kuvasz.lake.executors.expressions import Expressions
from kuvasz.lake.files.object_folder import kept_index
from kuvasz.lake.format import layout, source_positions, table_identity
from kuvasz.lake.format.binding import Feeds
from kuvasz.lake.format.schema import SID, bounded, refuse_unread, wanted
from kuvasz.lake.format.schema_steps import AddField
from kuvasz.lake.iceberg.remake import remake
from kuvasz.lake.jvm.jvm_errors import gone
from kuvasz.lake.table.notes import Notes
from kuvasz.lake.table.table import LakeTable
from kuvasz.lake.table.write_era import WriteEra
from kuvasz.model import TableType
from kuvasz.state.lakes.ports import LakeTablePlace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kuvasz.config.model import Config
    from kuvasz.index.kept import IndexCheckpoints
    from kuvasz.lake.about.tables import AboutTable
    from kuvasz.lake.iceberg.engine import Engine
    from kuvasz.lake.jvm.iceberg_table import IcebergTable
    from kuvasz.model import Relation, SourcePosition
    from kuvasz.ports import Feed, Target
    from kuvasz.state.lakes.ports import TableOwners
    from kuvasz.state.ports import Witness

#: How long a table that is not there is believed not to be: nobody but this process makes it.
_MISSING_S = 1.0

#: How long a table that was refused may take to be tried.
_TRIAL_S = 10.0

#: Of tables about the lake: every reader knows it, and nothing of them is deleted row by row.
_FORMAT_OF_ABOUT = "2"

_TABLE_PROPERTIES = {
    "write.delete.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.merge.mode": "merge-on-read",
    "write.delete.isolation-level": "snapshot",
    "write.update.isolation-level": "snapshot",
    "write.merge.isolation-level": "snapshot",
    "write.distribution-mode": "none",
    "write.parquet.compression-codec": "zstd",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "write.metadata.metrics.default": "counts",
    "commit.manifest.min-count-to-merge": "50",
    "commit.retry.num-retries": "10",
    "commit.retry.min-wait-ms": "20",
    "history.expire.max-snapshot-age-ms": "1800000",
    "history.expire.min-snapshots-to-keep": "30",
}


class Tables:
    """The tables of one lake. Safe to call from any thread.

    Large because all that loads a table, tries it again or lets it go takes the same lock.

    Args:
        config: The whole configuration.
        engine: Where they are, once it is open.
        witness: The witness of the tables' positions.
        owners: Knows which are another group's of the same log; None: there is no other one.
    """

    def __init__(self, config: Config, engine: Engine, witness: Witness, owners: TableOwners | None = None) -> None:
        self._config = config
        self._owners = owners
        self._engine = engine
        self._witness = witness
        self._locks: dict[str, threading.RLock] = {}  #: by name; held by who loads it
        self._missing: dict[str, float] = {}  #: name -> when a look began that did not find it, monotonic seconds
        self._attached: set[str] = set()  #: names of those that no source has followed since they were loaded
        self._read_ahead: set[LakeTable] = set()  #: those whose indexes are being opened
        self.feeds = Feeds()  #: what feeds them
        self.loaded: dict[str, LakeTable] = {}  #: by name

    def get(self, name: str) -> LakeTable | None:
        """Return a table that is loaded."""
        return self.loaded.get(name)

    def __getitem__(self, name: str) -> LakeTable:
        """Return a table that was prepared or attached."""
        return self.loaded[name]

    def all(self) -> list[LakeTable]:
        """Return all that are loaded."""
        return list(self.loaded.values())

    def found(self, name: str) -> IcebergTable | None:
        """Return a table as the catalog has it, whoever has it loaded; None: there is none.

        Raises:
            LakeError: The catalog failed.
        """
        return self._engine.catalog.load(name)

    # To load

    def _loading(self, name: str) -> threading.RLock:
        return self._locks.setdefault(name, threading.RLock())

    def prepare(self, target: Target, feed: Feed, relation: Relation) -> LakeTable:
        """Return a table, loaded, created, or tried again if it had failed.

        Raises:
            TableStuck: Catalog or store refuse it still.
            LakeError: The catalog failed.
        """
        asked_at = time.monotonic()
        with self._loading(target.name):
            self.feeds.add(feed)
            table = self.loaded.get(target.name)
            if target.name in self._attached:
                self._attached.discard(target.name)
                if table is not None and table_identity.may_be_another(table.table.properties, target):
                    self.loaded.pop(target.name).close()  # what it becomes is known with a source's columns
                    table = None
            if table is None or isinstance(table.era.error, TableGone):
                table = self.loaded[target.name] = self._load(target, feed, relation, asked_at)
        self._try(table)
        return table

    def create(self, target: Target, feed: Feed, relation: Relation) -> bool:
        """Create a table that nothing feeds yet; see `kuvasz.ports.Lake.create`."""
        with self._loading(target.name):
            if self._engine.catalog.load(target.name) is not None:
                return False
            self._made(target, feed, relation)
            self._missing.pop(target.name, None)
            return True

    def attach(self, target: Target, feed: Feed) -> bool:
        """Load a table that exists; see `kuvasz.ports.Lake.attach`."""
        asked_at = time.monotonic() - _MISSING_S
        with self._loading(target.name):
            self.feeds.add(feed)
            if target.name not in self.loaded:
                found = self._find(target.name, asked_at)
                if found is None:
                    return False
                self.loaded[target.name] = self._table(found, target)
                self._attached.add(target.name)
            return True

    def _load(self, target: Target, feed: Feed, relation: Relation, asked_at: float) -> LakeTable:
        found = self._find(target.name, asked_at)
        if found is None:
            found = self._made(target, feed, relation)
        elif table_identity.may_be_another(found.properties, target):
            self._remake(found, target, feed, relation)
        return self._table(found, target)

    def _made(self, target: Target, feed: Feed, relation: Relation) -> IcebergTable:
        return self._create(target, self._view(target, feed, relation))

    def _remake(self, found: IcebergTable, target: Target, feed: Feed, relation: Relation) -> None:
        view = self._view(target, feed, relation)
        remake(found, target, feed, view, wanted(target, view), self._witness)

    def _view(self, target: Target, feed: Feed, relation: Relation) -> Relation:
        """Return a source's relation as a target has it."""
        return Expressions(self._engine.session).project(target, relation, feed.place).relation

    def _find(self, name: str, asked_at: float) -> IcebergTable | None:
        """Look a table up in the catalog, once for all sources that ask for it at a time."""
        if self._missing.get(name, 0.0) > asked_at:
            return None
        begin = time.monotonic()
        found = self._own(self._engine.catalog.load(name))
        if found is None:
            self._missing[name] = begin
        return found

    def _own(self, found: IcebergTable | None) -> IcebergTable | None:
        """Return a table that the catalog has, once it is this group's.

        Raises:
            TableTaken: It is another group's.
            StateError: The coordinator does not answer.
        """
        if self._owners is not None and found is not None:
            place = names.one_place(found.location)
            self._owners.claim(LakeTablePlace(target=found.name, uuid=found.uuid, place=place))
        return found

    def _table(self, found: IcebergTable, target: Target) -> LakeTable:
        found.branch.settle(target.branch)
        now = found.properties if target.properties else {}
        if other := {name: value for name, value in target.properties.items() if now.get(name) != value}:
            found.set_properties(other)
        return LakeTable(
            found,
            target,
            self._engine.access,
            IndexPlace(folder=self._config.pipeline.state_folder / "index", kept=self._kept),
            Expressions(self._engine.session),
            self._engine.readers.of,
            None if target.name.rpartition(".")[0] == self._config.lake.about else self._witness,
        )

    def _kept(self, uuid: str) -> IndexCheckpoints | None:
        return kept_index(self._config, self._engine.access, uuid)

    def _create(self, target: Target, relation: Relation) -> IcebergTable:
        fields = wanted(target, relation)
        named = [field.name for field in fields]
        refuse_unread(named, named, place_of(table=relation.table))
        asked = layout.wanted(target, fields)
        key = relation.key
        properties = {
            **_TABLE_PROPERTIES,
            "format-version": str(self._config.lake.format_version),
            **table_identity.render(target, key),
        }
        properties |= {f"write.metadata.metrics.column.{name}": "full" for name in bounded(target, key)}
        properties |= target.properties
        if target.branch != table_identity.MAIN:
            properties[table_identity.BRANCH_PROPERTY] = target.branch
        columns = ((SID,) if target.has_sid else ()) + key
        identifiers = columns if target.type is TableType.CLONE else ()  # elsewhere several rows may have one key
        catalog = self._engine.catalog
        if self._owners is not None:  # before anything is written there
            place = target.location or self._config.lake.default_location(target.name)
            self._owners.claim(LakeTablePlace(target=target.name, place=place and names.one_place(place)))
        catalog.ensure_namespace(target.name.rpartition(".")[0])
        made = catalog.create(target.name, fields, identifiers, asked, properties, target.location)
        self._own(made)
        return made

    def about(self, table: AboutTable) -> LakeTable:
        """Return a table about the lake, made if it is missing; it is nobody's target, and not among those here.

        Raises:
            SchemaError: There is one of that name that kuvasz has not made.
            LakeError: The catalog failed.
        """
        assert self._config.lake.about is not None
        target, catalog = table.target(self._config.lake.about), self._engine.catalog
        found = self._own(catalog.load(target.name))
        if found is None:
            fields = table.fields()
            properties = {
                **_TABLE_PROPERTIES, "format-version": _FORMAT_OF_ABOUT, **table_identity.render(target, ()),
            }  # fmt: skip
            catalog.ensure_namespace(self._config.lake.about)
            found = catalog.create(target.name, fields, (), layout.wanted(target, fields), properties)
            self._own(found)
        made = self._table(found, target)
        there = made.definition.schema
        missing = [AddField(field) for field in table.fields() if there.by_name(field.name) is None]
        if not missing:
            return made
        found.schema.change(missing, lambda _: {})  # an earlier version made it
        return self._table(found, target)

    # To try again

    def _try(self, table: LakeTable) -> None:
        """Find out whether catalog and store take a table again that they had refused.

        Raises:
            TableStuck: Catalog or store still refuse the table.
        """
        refusal = table.era.error
        if not isinstance(refusal, LakeError) or isinstance(refusal, LateCommit):
            return
        try:
            self._engine.pool.submit(table.prove).result(_TRIAL_S)
        except TimeoutError as error:
            message = f"{place_of(table=table.name)}: catalog or store have not answered for {_TRIAL_S:g} s"
            raise TableStuck(message, hint="see what they wait for; it is tried again") from error
        except LakeError as error:
            raise TableStuck(error.message, hint=error.hint) from error

    def read_index_ahead(self, table: LakeTable) -> None:
        """Open a table's index beside, ahead of its first changes; not if it was let go of by then."""
        if table.index.is_open or table in self._read_ahead:
            return

        def read() -> None:
            try:
                with self.having(table) as is_there:
                    if is_there:
                        read_index(table)
            finally:
                self._read_ahead.discard(table)

        self._read_ahead.add(table)
        self._engine.pool.submit(read)

    # Positions

    def recorded(self, name: str) -> Mapping[str, SourcePosition]:
        """Return how far each source is in any table; the catalog is asked for one that is not loaded.

        What is there of copies that nobody answered is known from then on, unless the table is being committed to.

        Raises:
            LakeError: The catalog failed, or a position was damaged.
        """
        table = self.loaded.get(name)
        if table is not None:
            with contextlib.suppress(TableStuck):
                table.find_unanswered()
            return dict(table.positions)
        with self._loading(name):
            found = self._find(name, time.monotonic() - _MISSING_S)
        return _positions(found)

    def stored(self, name: str) -> Mapping[str, SourcePosition]:
        """Return the same as the catalog has it."""
        return _positions(self.found(name))

    def forget_position(
        self, name: str, source: str, *, to_repair: bool, is_gone: bool, gap_lsn: int | None = None
    ) -> None:
        """Drop a source's position; see `kuvasz.ports.Lake.forget`."""
        with self._loading(name):  # or another source might load it meanwhile, with the position
            table, found = self.loaded.get(name), self._own(self._engine.catalog.load(name))
            if table is None:
                self._witness.drop(name, source)
                if found is not None:
                    dropped = source_positions.parse(found.properties, name).get(source)
                    Notes(found).drop_position(source, to_repair=to_repair, is_gone=is_gone, gap_lsn=gap_lsn)
                    if dropped is not None:
                        self._witness.give_up(name, source, dropped)
                return
        with table.lock.asking():
            if found is None:  # a table that was loaded before does not say so twice
                error = gone(name)
                table.era = WriteEra(accepted={}, error=error)
                raise error
            table.forget_position(source, to_repair=to_repair, is_gone=is_gone, gap_lsn=gap_lsn)

    @contextlib.contextmanager
    def having(self, table: LakeTable) -> Iterator[bool]:
        """Yield whether a table is loaded still, which it is for as long as the body runs: then nobody else has it.

        Raises:
            TableStuck: Whoever has its lock waits for catalog or store.
        """
        with table.lock:
            yield self.loaded.get(table.name) is table

    def let_go(self, name: str) -> None:
        """Forget a table: its index is saved, and it is loaded anew when it comes back."""
        with self._loading(name):
            table = self.loaded.pop(name, None)
            self._attached.discard(name)
            self._missing.pop(name, None)
            if table is not None:
                with contextlib.suppress(TableStuck):
                    table.close()
            self._witness.let_go(name)  # last: whoever was looking at the table has asked it

    def close(self) -> None:
        """Save their indexes; threads that are not cut off may load tables meanwhile, and they are not waited for."""
        for table in list(self.loaded.values()):
            with contextlib.suppress(TableStuck):
                table.close()


def _positions(found: IcebergTable | None) -> Mapping[str, SourcePosition]:
    return {} if found is None else source_positions.parse(found.properties, found.name)


def read_index(table: LakeTable) -> None:
    """Open a table's index; what fails here fails again, and is told, with its first changes."""
    with table.lock, contextlib.suppress(KuvaszError):
        if not table.index.is_open:
            table.follow()


__all__ = ["Tables", "read_index"]
