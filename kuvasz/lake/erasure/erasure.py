"""Rows taken out of tables for good, with a Spark of its own: nobody writes to the tables meanwhile.

Works without position indexes: whoever streams next notices that the files are others, and reads their keys.
"""

from __future__ import annotations

import contextlib
import datetime
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kuvasz.errors import ConfigError, LakeError, place_of
from kuvasz.index.kept import IndexPlace
from kuvasz.lake.about.tables import EVENTS, REJECTS, SOURCES, TABLES
from kuvasz.lake.about.writer import AboutWriter
from kuvasz.lake.erasure.table_erasure import TableErasure
from kuvasz.lake.executors.expressions import Expressions
from kuvasz.lake.executors.jobs import Jobs
from kuvasz.lake.files import store_access
from kuvasz.lake.format.table_identity import MAIN
from kuvasz.lake.jvm import spark
from kuvasz.lake.jvm.catalog import Catalog
from kuvasz.lake.maintenance.maintenance import Maintainer
from kuvasz.lake.table.table import LakeTable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from pyspark.sql import SparkSession

    from kuvasz.config.model import Config
    from kuvasz.lake.about.rows import Row
    from kuvasz.lake.about.tables import AboutTable
    from kuvasz.lake.erasure.journal import Journal
    from kuvasz.lake.erasure.rows import RowsToErase
    from kuvasz.lake.java.signing_key import SigningKey
    from kuvasz.lake.jvm.iceberg_table import IcebergTable
    from kuvasz.ports import Target

#: Stands for tables about the lake of which nobody knows whether they are there.
_UNLISTED: Final = "tables about the lake in other namespaces, which cannot be listed"

#: Of the tables about the lake: those that say something of sources in words, or hold what they sent.
_ABOUT = frozenset({EVENTS, REJECTS, SOURCES})


class Erasure:
    """The erasure. Made by `opened`.

    Args:
        config: The whole configuration.
        session: The running Spark.
        folder: For what is thrown away at the end.
    """

    def __init__(self, config: Config, session: SparkSession, folder: Path) -> None:
        self._config = config
        self._session = session
        self._folder = folder
        self._access = store_access.of_lake(config.lake)
        self._catalog = Catalog(session, config.lake.name, self._access)

    def about(self) -> list[Target]:
        """Return the tables about the lake that may have something of a source."""
        namespace = self._config.lake.about
        return [] if namespace is None else [one.target(namespace) for one in TABLES if one.name in _ABOUT]

    def rejects(self) -> list[Target]:
        """Return the table about the lake with rows that did not fit."""
        return [target for target in self.about() if target.name.rpartition(".")[2] == REJECTS]

    def others(self, targets: Sequence[Target]) -> list[str]:
        """Return the tables in the same namespaces that are none of these, and those of `left_behind`."""
        namespaces = {target.name.rpartition(".")[0] for target in targets} - {self._config.lake.about}
        known = {target.name for target in targets}
        found = {name for space in namespaces for name in self._catalog.tables(space) if name not in known}
        return sorted(found.union(self.left_behind(_ABOUT)))

    def left_behind(self, kinds: Collection[str]) -> list[str]:
        """Return the tables about the lake that were written while the map named another namespace for them.

        Args:
            kinds: Which of them, by their names.
        """
        known = {one.name: one for one in TABLES if one.name in kinds}
        try:
            spaces = [space for space in self._catalog.namespaces() if space != self._config.lake.about]
            names = [name for space in spaces for name in self._catalog.tables(space)]
            named = [name for name in names if name.rpartition(".")[2] in known]
            return sorted(name for name in named if self._is_about(name, known[name.rpartition(".")[2]]))
        except LakeError:  # who may write some namespaces need not be let list the others
            return [_UNLISTED]

    def _is_about(self, name: str, about: AboutTable) -> bool:
        """Whether a table has the columns of one about the lake; an earlier version had fewer."""
        found = self._catalog.load(name)
        columns = {field.name for field in found.schema.read().fields} if found else set()
        return about.time in columns and columns <= about.columns.keys()

    def refuse_names(self, targets: Sequence[Target]) -> None:
        """Refuse to begin where tags or branches keep what is to go.

        Raises:
            ConfigError: Some do; all are named.
        """
        named = [f"{target.name}: {', '.join(names)}" for target in targets
                 if (found := self._catalog.load(target.name)) and (names := found.remains.names())]  # fmt: skip
        if named:
            raise ConfigError(
                f"tags and branches hold older snapshots, with the rows that are to go: {'; '.join(named)}",
                hint="--with-tags removes them; cuts are such tags. Without it nothing is done",
            )

    def refuse_branches(self, targets: Sequence[Target]) -> None:
        """Refuse to begin where another branch than main is written: main would keep what is to go.

        Raises:
            ConfigError: One is; all are named.
        """
        found = {target.name: there.branch.name for target in targets if (there := self._catalog.load(target.name))}
        if others := [f"{name}: {branch}" for name, branch in found.items() if branch != MAIN]:
            raise ConfigError(
                f"tables are written to a branch besides main, which would keep the rows that are to go: "
                f"{'; '.join(others)}",
                hint="`kuvasz publish` it, take `branch` out of the map, start kuvasz once with that, and erase then",
            )

    def tell(self, rows: Sequence[Row]) -> None:
        """Add rows to the table of events, if there is one.

        Raises:
            KuvaszError: It could not be done; it may be done again.
        """
        namespace = self._config.lake.about
        (about,) = (one for one in TABLES if one.name == EVENTS)
        found = None if namespace is None else self._catalog.load(f"{namespace}.{EVENTS}")
        if found is None:
            return
        made = self._table(found, about.target(str(namespace)))
        writer = AboutWriter(about, lambda _: made, self._config.lake.about_keep)
        try:
            with writer.held() as table:
                writer.write(table, rows, {}, datetime.datetime.now(datetime.UTC))
        except OSError as error:
            message = f"{place_of(table=made.name)}: what was done cannot be told: {error}"
            hint = "check the warehouse, and begin again: it goes on where it was"
            raise LakeError(message, hint=hint) from error

    def sign(self, key: SigningKey, text: str) -> str:
        """Return the signature of a text, in base64.

        Raises:
            ConfigError: The key is of a kind that cannot.
        """
        return key.sign(self._session, text)

    def run(self, rows: Sequence[tuple[Target, RowsToErase]], journal: Journal) -> None:
        """Erase rows from tables; those that the lake does not have are passed over.

        Args:
            rows: What goes from which table.
            journal: Told how far each of them is.

        Raises:
            KuvaszError: It could not be done. It may be begun again.
        """
        maintenance = self._config.maintenance.model_copy(update={"clean_branch": False})
        maintainer = Maintainer(
            maintenance, self._catalog, Jobs(self._session), lambda: (), lambda _: None, self._folder / "state"
        )
        try:
            for target, mine in rows:
                found = self._catalog.load(target.name)
                if found is not None:
                    TableErasure(self._table(found, target), mine, journal, maintainer).run()
        finally:
            maintainer.stop()

    def _table(self, found: IcebergTable, target: Target) -> LakeTable:
        place = IndexPlace(folder=self._folder / "index")
        return LakeTable(found, target, self._access, place, Expressions(self._session))


@contextlib.contextmanager
def opened(config: Config, session: SparkSession | None = None) -> Iterator[Erasure]:
    """Make an erasure.

    Args:
        config: The whole configuration.
        session: A running Spark; started and stopped otherwise.

    Raises:
        LakeError: Spark does not start or the catalog cannot be reached.
    """
    own = session or spark.open_session(config)
    try:
        with tempfile.TemporaryDirectory(prefix="kuvasz-erase-") as folder:
            yield Erasure(config, own, Path(folder))
    finally:
        if session is None:
            own.stop()


__all__ = ["Erasure", "opened"]
