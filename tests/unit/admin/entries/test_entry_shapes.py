from __future__ import annotations

from kuvasz.admin.entries.entry_shapes import ENTRY_SHAPES, LIST_FIELDS


def test_lists_go_by_what_is_one_value() -> None:
    assert LIST_FIELDS["Database"] == ("id", "name")
    assert LIST_FIELDS["TableEntry"] == tuple(ENTRY_SHAPES["TableEntry"]["properties"])
    assert not {"set", "partitions", "source_columns"} & set(LIST_FIELDS["MapEntry"])
