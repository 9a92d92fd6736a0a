"""What a lake table is: its name and place, its columns and key, and how its files lie."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

from kuvasz.events import Event, EventLog
from kuvasz.index import seed as index_seed
from kuvasz.lake.files.data_file import remove
from kuvasz.lake.files.file_io import file_io
from kuvasz.lake.files.store_access import of_table
from kuvasz.lake.format import layout, table_identity
from kuvasz.lake.format.layout import Layout
from kuvasz.lake.format.schema import SID, LakeSchema, bounded
from kuvasz.lake.jvm.iceberg_table import IcebergTable
from kuvasz.model import TableType
from kuvasz.modes import keyless
from kuvasz.ports import Target

_log = EventLog(__name__)

#: Table types in which several rows have one key, the newest of which the index knows.
_GROWING = frozenset({TableType.APPEND, TableType.CHANGELOG})

#: Seconds for which a layout that was read is taken for the table's: of a fleet each source asks for it.
_SETTLED_S = 5.0


class Definition:
    """The definition of one table, as it was at the table's last look.

    Args:
        table: The Iceberg table.
        target: What the map says of it.
        io_properties: The properties of the FileIO, of which those of other tables do not travel.
        secret: The half of its seed that does not stand in the lake (`kuvasz.index.seed`).
    """

    def __init__(self, table: IcebergTable, target: Target, io_properties: Mapping[str, str], secret: bytes) -> None:
        self._table = table
        self.target = target
        self.uuid = table.uuid
        self.location = table.location
        self.io_properties = of_table(io_properties, self.location)
        self.format_version = table.format_version
        self.lock = threading.RLock()  #: held while schema, key, layout and shapes change together
        self.schema: LakeSchema = table.schema.read()
        identity = table_identity.parse(table.properties, target, self.schema)
        self.seed = index_seed.of_table(secret, identity.seed)
        self.key = identity.key
        self.layout = self._layout()
        self.identities = 0  #: how often other columns came to tell rows without a key apart

    @property
    def name(self) -> str:
        """The table's name in the lake."""
        return self.target.name

    @property
    def is_bag(self) -> bool:
        """Whether it clones a table without a key, whose rows are matched as a whole."""
        return self.target.type is TableType.CLONE and not self.key

    @property
    def has_unique_keys(self) -> bool:
        """Whether a key has one live row at most, so that reading live rows tells where the newest is."""
        return self.target.type is TableType.CLONE and not self.is_bag

    @property
    def is_growing(self) -> bool:
        """Whether several rows may have one key, of which the one written last is the newest."""
        return self.target.type in _GROWING

    @property
    def keeps_order(self) -> bool:
        """Whether the order of its rows counts, and the files can say what it is."""
        return self.is_growing and self.layout.is_plain

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns, without sid, whose values the index knows rows by; empty if it knows none."""
        if not self.is_bag:
            return self.key
        return tuple(keyless.hashed_columns(self.schema.arrow(), has_sid=self.target.has_sid))

    @property
    def sid_id(self) -> int | None:
        """Id of the field with the source's identifier; None if there is none, or it is a source's own column."""
        sid = self.schema.by_name(SID)
        return sid.field_id if sid is not None and self.target.has_sid else None

    @property
    def bounded(self) -> tuple[str, ...]:
        """Columns whose bounds are kept: the key's, sid included, and some of kuvasz's own."""
        return bounded(self.target, self.key)

    def remove(self, paths: Iterable[str]) -> None:
        """Remove files of the table that no snapshot will know."""
        remove(file_io(self.io_properties, self.location), paths)

    def read_again(self, key: tuple[str, ...] | None = None) -> bool:
        """Read columns and layout after they were changed; the key may have changed with them.

        Returns:
            Whether rows without a key are told apart by other columns now.
        """
        with self.lock:
            before = self._hashed()
            if key is not None:
                self.key = key
            self.schema = self._table.schema.read()
            self.layout = self._layout()
            is_other = self.is_bag and self._hashed() != before
            self.identities += is_other
            return is_other

    def _hashed(self) -> tuple[tuple[int, str], ...] | None:
        """Return id and type of the fields by which the index knows rows without a key; None if they have one."""
        fields = (self.schema.by_name(name) for name in self.identity) if self.is_bag else None
        return None if fields is None else tuple((field.field_id, str(field.type)) for field in fields if field)

    def settle_layout(self, former_names: dict[str, str]) -> None:
        """Take over the layout that the map asks for; files that are there keep their own.

        Args:
            former_names: Name that a source's column had before -> name of the field that it fills now.

        Raises:
            SchemaError: It names a column that is not there.
        """
        with self.lock:
            asked = layout.wanted(self.target, self.schema.fields, former_names)
            now = self._table.layout.read(age_s=_SETTLED_S)
            if set(asked.partition) != set(now.partition) or asked.order != now.order:
                self._table.layout.replace(now, asked)
                _log.tell(
                    Event.LAYOUT_CHANGED,
                    table=self.name,
                    partition_by=list(self.target.partition_by),
                    sort_by=list(self.target.sort_by),
                )
                now = self._table.layout.read()
            self.layout = now.compressed(self.target.properties)

    def _layout(self) -> Layout:
        return self._table.layout.read().compressed(self.target.properties)


__all__ = ["Definition"]
