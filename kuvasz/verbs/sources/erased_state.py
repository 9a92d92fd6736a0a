"""What lies outside the lake's tables of what is erased: parked changes, notes, ledgers, spool, indexes, catalog."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from typing import TYPE_CHECKING, Any, Final

from kuvasz.config import names
from kuvasz.errors import StateError
from kuvasz.lake.executors.spool import Spool
from kuvasz.lake.files import store_access
from kuvasz.lake.files.object_folder import kept_index
from kuvasz.lake.iceberg.engine import spool_folder
from kuvasz.parking.store import logs_of
from kuvasz.state.copies import ledger_file
from kuvasz.state.ports import Note
from kuvasz.state.store import state_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from kuvasz.config.model import Config

#: Where parked changes lie in the state folder, by source, and how far they go.
_PARKED: Final = "parked"
_REACHES: Final = "reach"

#: Where copies and repairs keep, in the state folder, hashes of the keys that they have read; a kill leaves them.
_KEYS_OF_COPIES: Final = ("copy", "repair")

#: Seconds to wait for whoever has the catalog's file.
_CATALOG_S: Final = 30.0


def forget(config: Config, tables: Mapping[str, Mapping[str, Any]], sources: Collection[str]) -> dict[str, Any]:
    """Remove what is there, whatever an earlier call has removed; the state store must be owned.

    Args:
        config: The whole configuration.
        tables: What is known of each table: its `uuid`, and the `sources` whose rows it lost.
        sources: Names of the sources that are erased.

    Returns:
        How much was found of each, and what else there is.

    Raises:
        StateError: Something cannot be removed.
    """
    folder = config.pipeline.state_folder
    members = {(table, source) for table, told in tables.items() for source in (*told.get("sources", ()), *sources)}
    try:
        return {
            "parked": _parked(config, members, sources),
            "notes": _notes(config, members, sources),
            "verdicts": _verdicts(config, tables, sources),
            "copies": _copies(folder, tables, sources),
            "spooled": clear_spool(config),
            "indexes": drop_indexes(config, [told["uuid"] for told in tables.values() if "uuid" in told]),
            "catalog": vacuum(config),
        }
    except OSError as error:
        raise StateError(
            f"{error.filename or folder} cannot be removed: {(error.strerror or str(error)).lower()}",
            hint="let kuvasz remove it, and begin again: it goes on where it was",
        ) from error


def _parked(config: Config, members: Collection[tuple[str, str]], sources: Collection[str]) -> int:
    logs, state = logs_of(config), config.pipeline.state_folder
    folder = state / _PARKED
    for table, source in members:
        logs.remove(table, source)
    found = 0
    for source in sources:
        if (folder / source).is_dir():
            found += sum(1 for path in (folder / source).rglob("*") if path.is_file())
            shutil.rmtree(folder / source)
        if (state / _REACHES / source).is_dir():
            shutil.rmtree(state / _REACHES / source)
    return found


def _notes(config: Config, members: Collection[tuple[str, str]], sources: Collection[str]) -> int:
    store = state_of(config)
    mine = [key for key in store.notes.all() if key in members or names.source_of(key[1]) in sources]
    if mine:
        store.notes.put(dict.fromkeys(mine, Note()))
    for table, source in members:
        store.witness.drop(table, source)
    return len(mine)


def _verdicts(config: Config, tables: Collection[str], sources: Collection[str]) -> int:
    """Forget what comparisons found of what is erased: an error may quote a row, whosever comparison it ended."""
    stored = state_of(config).verdicts
    mine = [
        key for key, one in stored.all().items()
        if names.source_of(key[1]) in sources or (key[0] in tables and one.error)
    ]  # fmt: skip
    if mine:
        stored.put(dict.fromkeys(mine))
    return len(mine)


def _copies(folder: Path, tables: Collection[str], sources: Collection[str]) -> int:
    """Forget copies that were cut off: with all that the tables do not need their files went, whosever they were."""
    for name in _KEYS_OF_COPIES:
        if (folder / name).is_dir():
            shutil.rmtree(folder / name)
    return ledger_file.remove_all(
        folder, lambda table, source: table in tables or names.source_of(source) in sources
    )  # fmt: skip


def clear_spool(config: Config) -> int:
    """Remove what a killed kuvasz has left in the spool; return how many files.

    In a store the files of whoever else writes to the lake go with it, however new they are: that job is run again.
    """
    return Spool(spool_folder(config), config.lake.properties).clear(is_all=True)


def drop_indexes(config: Config, uuids: Sequence[str]) -> int:
    """Remove the position indexes of tables, which know rows by hashes of their keys; return how many are here.

    Those that are kept in the store go as well; what another machine has of one is not believed from now on.
    """
    folder, access = config.pipeline.state_folder, store_access.of_lake(config.lake)
    for uuid in uuids:
        if (kept := kept_index(config, access, uuid)) is not None:
            kept.remove()
    found = [folder / "index" / uuid for uuid in uuids if (folder / "index" / uuid).is_dir()]
    for path in found:
        shutil.rmtree(path)
    return len(found)


def vacuum(config: Config) -> str:
    """Have an SQLite catalog keep nothing of what was removed from it; say what became of it."""
    file = config.lake.sqlite_file
    if file is None:
        return "not looked at: it is a server's"
    try:
        with contextlib.closing(sqlite3.connect(file, timeout=_CATALOG_S, isolation_level=None)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.execute("VACUUM")
    except sqlite3.Error as error:
        message = f"{file} cannot be written anew: {error}"
        raise StateError(
            message, hint="let no other program have it open, and begin again: it goes on where it was"
        ) from error
    return "written anew"


__all__ = ["clear_spool", "drop_indexes", "forget", "vacuum"]
