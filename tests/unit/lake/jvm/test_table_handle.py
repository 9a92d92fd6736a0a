"""A change of schema or layout gives way to commits of rows alone; and what is asked twice is asked once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.errors import ForeignChange
from kuvasz.lake.jvm.iceberg_schema import IcebergSchema
from kuvasz.lake.jvm.table_handle import TableHandle


class Java:
    """Iceberg's table, as far as it is asked."""

    def __init__(self) -> None:
        self.schema_id = self.refreshed = 0

    def location(self) -> str:
        return "file:/lake/items"

    def refresh(self) -> None:
        self.refreshed += 1

    def schema(self) -> Any:
        return SimpleNamespace(schemaId=lambda: self.schema_id)

    def spec(self) -> Any:
        return SimpleNamespace(specId=lambda: 0)

    def sortOrder(self) -> Any:  # noqa: N802 (Java)
        return SimpleNamespace(orderId=lambda: 0)


class Change:
    """Meets other commits so many times."""

    def __init__(self, conflicts: int, java: Java | None = None) -> None:
        self.left, self.tried, self.java = conflicts, 0, java

    def __call__(self) -> None:
        self.tried += 1
        if self.left:
            self.left -= 1
            if self.java is not None:
                self.java.schema_id += 1
            raise ForeignChange("another one was faster")


def handle(java: Java) -> TableHandle:
    classes: Any = None
    return TableHandle(classes, java, "shop.items")


def test_a_change_that_meets_a_commit_of_rows_is_made_upon_it() -> None:
    java, change = Java(), Change(2)
    handle(java).after_others(change)
    assert (change.tried, java.refreshed) == (3, 2)


def test_one_that_meets_another_change_of_the_same_kind_is_told_at_once() -> None:
    java = Java()
    change = Change(9, java)
    with pytest.raises(ForeignChange):
        handle(java).after_others(change)
    assert change.tried == 1


def test_it_gives_way_a_few_times_and_not_for_ever() -> None:
    change = Change(1 << 20)
    with pytest.raises(ForeignChange):
        handle(Java()).after_others(change)
    assert 1 < change.tried < 10


def test_files_of_this_machine_are_known() -> None:
    java = Java()
    assert handle(java).is_local
    java.location = lambda: "s3://lake/items"  # type: ignore[method-assign]
    assert not handle(java).is_local


def test_what_was_asked_is_kept_until_something_may_have_changed() -> None:
    java = Java()
    of = handle(java)
    schema = IcebergSchema(of)
    with of.unchanged():
        assert schema.id == 0
        java.schema_id = 1
        assert schema.id == 0, "somebody else's, which nobody has looked at"
        of.refresh()
        assert schema.id == 1
        java.schema_id = 2
        with pytest.raises(ForeignChange), of.changing():
            raise ForeignChange("another one was faster")
        assert schema.id == 2, "a commit that failed may have been made"
        java.schema_id = 3
    assert schema.id == 3
    with of.unchanged():
        assert schema.id == 2, "the next one knows what was asked: nobody has looked since"
    of.refresh()
    with of.unchanged():
        assert schema.id == 3, "nothing is left of before"
