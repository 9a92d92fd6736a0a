from __future__ import annotations

import pytest

from kuvasz.config.written.map_edit import Append, Drop, MapEdit, Put, Rename, edited
from kuvasz.errors import ConfigError

VALUE = {"a": [{"b": "c", "d": "e"}]}


@pytest.mark.parametrize(
    ("edit", "after"),
    [
        (Put(path=("a", 0, "b"), value=None), {"a": [{"b": None, "d": "e"}]}),
        (Put(path=("f",), value="g"), {"a": [{"b": "c", "d": "e"}], "f": "g"}),
        (Append(path=("a",), value="x"), {"a": [{"b": "c", "d": "e"}, "x"]}),
        (Drop(path=("a", 0)), {"a": []}),
        (Drop(path=("a", 0, "b")), {"a": [{"d": "e"}]}),
        (Rename(path=("a", 0, "b"), key="z"), {"a": [{"z": "c", "d": "e"}]}),
    ],
)
def test_an_edit_changes_one_thing(edit: MapEdit, after: object) -> None:
    assert edited(VALUE, edit) == after
    assert VALUE == {"a": [{"b": "c", "d": "e"}]}, "the value before stays"


@pytest.mark.parametrize(
    "edit",
    [
        Put(path=("a", 1, "b"), value=None), Append(path=("a", 0), value="x"), Drop(path=("a", 1)), Drop(path=("x",)),
        Rename(path=("a", 0), key="z"), Rename(path=("x",), key="z"), Put(path=("a", "b"), value=None),
    ],
)  # fmt: skip
def test_what_is_not_there_cannot_be_changed(edit: MapEdit) -> None:
    with pytest.raises(ConfigError, match="nothing at"):
        edited(VALUE, edit)
