"""What a lake's table shows on each of its branches, as PyIceberg and Spark read it."""

from __future__ import annotations

from typing import Any

from kuvasz.lake.jvm.catalog import Catalog
from kuvasz.lake.jvm.iceberg_table import IcebergTable
from tests.support import oracle
from tests.support.lake import LakeFolder


class BranchedTable:
    """One table of a lake, read by its branches."""

    def __init__(self, folder: LakeFolder, name: str = "shop.items") -> None:
        self._folder = folder
        self.name = name

    def refs(self) -> dict[str, int]:
        """Branch or tag -> snapshot, as the catalog has it now."""
        return {name: ref.snapshot_id for name, ref in self._found().metadata.refs.items()}

    def _found(self) -> Any:
        return oracle.open_table(self._folder.pyiceberg, self.name, catalog=self._folder.catalog)

    def rows(self, branch: str = "main") -> oracle.Rows:
        """The rows of a branch, which two engines agree on; of a main that never had any, none."""
        found, refs = self._found(), self.refs()
        mine = found.scan(snapshot_id=None if branch == "main" else refs[branch]).to_arrow()
        rows = oracle.rows_of_arrow(mine)
        spot = f"{self._folder.catalog}.{self.name}"
        sql = f"SELECT * FROM {spot}" + ("" if branch == "main" else f" VERSION AS OF '{branch}'")
        oracle.assert_equal(rows, oracle.rows_of_arrow(self._folder.session.sql(sql).toArrow()))
        return rows

    def handle(self) -> IcebergTable:
        """The table as another process loads it."""
        found = Catalog(self._folder.session, self._folder.catalog).load(self.name)
        assert found is not None
        return found


__all__ = ["BranchedTable"]
