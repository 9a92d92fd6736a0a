"""Whether a table's folder has files of another table as well.

Catalogs give a table a folder by its name. So two of them share one after somebody has renamed the first away, or
where another catalog has tables in the same warehouse. What one does not know there may be the rows of the other.
That leaves its metadata beside its data, as does a table that was dropped, or of a catalog that is lost. It lives if
the catalog knows a table there. Tables of other catalogs nobody can ask for; but who writes one writes metadata.
"""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Final

from kuvasz.config.names import one_place
from kuvasz.errors import LakeError, TableStuck, place_of
from kuvasz.lake.files.file_io import file_io

if TYPE_CHECKING:
    from kuvasz.lake.jvm.catalog import Catalog
    from kuvasz.lake.table.table import LakeTable

_SUFFIX: Final = ".metadata.json"
_GZIP: Final = b"\x1f\x8b"


def other_metadata(table: LakeTable, catalog: Catalog, oldest: float) -> str | None:
    """Return a metadata file of another table that lives in a table's folder; None: there is no such table.

    Args:
        table: The table.
        catalog: The catalog it is in.
        oldest: Unix seconds: a table that the catalog does not know, and that nobody has written since, is gone.

    Raises:
        LakeError: Catalog or store failed.
    """
    found = _metadata_of_others(table)
    if not found:
        return None
    newest = max(found, key=found.__getitem__)
    return newest if found[newest] >= oldest or _has_another_there(table, catalog) else None


def _metadata_of_others(table: LakeTable) -> dict[str, float]:
    """Return metadata files of other tables in the folder, with when they were written."""
    own, folder = table.table.remains.metadata_files(), f"{table.definition.location}/metadata/"
    listed = {path.rpartition("/")[2]: at for path, at in table.table.list_metadata()}
    others = {f"{folder}{name}": at for name, at in listed.items() if name.endswith(_SUFFIX) and name not in own}
    return {path: at for path, at in others.items() if _is_of_another(table, path)}


def _is_of_another(table: LakeTable, path: str) -> bool:
    """Whether a metadata file is of another table; a kill may leave one that cannot be read, which is nobody's."""
    try:
        with file_io(table.definition.io_properties, path).new_input(path).open() as stream:
            data = bytes(stream.read())
    except FileNotFoundError:  # it went meanwhile
        return False
    except Exception as error:  # each store has errors of its own
        message = f"{place_of(table=table.name)}: cannot read {path}: {error}"
        raise LakeError(message, hint="check the warehouse; it is tried again") from error
    try:
        found = json.loads(gzip.decompress(data) if data.startswith(_GZIP) else data)
    except (OSError, EOFError, ValueError):
        return False
    return isinstance(found, dict) and found.get("table-uuid") != table.definition.uuid


def _has_another_there(table: LakeTable, catalog: Catalog) -> bool:
    """Whether the catalog has another table in the folder."""
    mine = one_place(table.definition.location)
    names = {name for space in catalog.namespaces() for name in catalog.tables(space)} - {table.name}
    for name in sorted(names):
        try:
            found = catalog.load(name)
        except TableStuck:  # its metadata is nowhere
            continue
        if found is not None and one_place(found.location) == mine:
            return True
    return False


__all__ = ["other_metadata"]
