"""Rows taken out of tables for good, with a Spark of its own: nobody writes to the tables meanwhile.

Works without position indexes: whoever streams next notices that the files are others, and reads their keys.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from kuvasz.errors import ConfigError
from kuvasz.lake.about.tables import EVENTS, REJECTS, SOURCES, TABLES
from kuvasz.lake.erasure.table_erasure import TableErasure
from kuvasz.lake.executors.expressions import Expressions
from kuvasz.lake.executors.jobs import Jobs
from kuvasz.lake.files import store_access
from kuvasz.lake.format.table_identity import MAIN
from kuvasz.lake.jvm import spark
from kuvasz.lake.jvm.catalog import Catalog
from kuvasz.lake.maintenance.maintenance import Maintainer
from kuvasz.lake.maintenance.run_once import no_keys
from kuvasz.lake.table.table import LakeTable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from kuvasz.config.model import Config
    from kuvasz.lake.erasure.journal import Journal
    from kuvasz.lake.erasure.rows import RowsToErase
    from kuvasz.lake.java.signing_key import SigningKey
    from kuvasz.lake.jvm.iceberg_table import IcebergTable
    from kuvasz.ports import Target

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
        """Return the tables in the same namespaces that are none of these, nor about the lake."""
        namespaces = {target.name.rpartition(".")[0] for target in targets} - {self._config.lake.about}
        known = {target.name for target in targets}
        return sorted(name for space in namespaces for name in self._catalog.tables(space) if name not in known)

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
        return LakeTable(
            found, target, self._access, self._folder / "index", no_keys, Expressions(self._session)
        )  # fmt: skip


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
