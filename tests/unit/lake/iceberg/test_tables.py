"""The lake's tables as they are loaded."""

from __future__ import annotations

from typing import Any

from kuvasz.lake.iceberg.tables import Tables


class Table:
    """Has another one loaded while it is closed."""

    def __init__(self, loaded: dict[str, Any]) -> None:
        self.loaded = loaded
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True
        self.loaded[f"shop.t{len(self.loaded)}"] = self


def test_tables_are_closed_while_others_are_loaded() -> None:
    nobody: Any = None
    tables = Tables(nobody, nobody, nobody)
    loaded: dict[str, Any] = tables.loaded
    made = [Table(loaded), Table(loaded)]
    loaded.update({"shop.a": made[0], "shop.b": made[1]})
    tables.close()
    assert all(table.is_closed for table in made)
