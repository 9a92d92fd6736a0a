"""Which rows of a file are to go."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kuvasz.errors import LakeError
from kuvasz.lake.erasure.rows import MISFIT_COLUMNS, AboutRows, KeyRows, MisfitRows, RowsToErase, SidRows
from kuvasz.lake.files.files import FileEntry
from kuvasz.model import TableType

SOURCES = frozenset({"shop_de"})


def field(name: str, kind: pa.DataType, number: int) -> pa.Field:
    return pa.field(name, kind, metadata={b"PARQUET:field_id": str(number).encode()})


SCHEMA = pa.schema([field("sid", pa.string(), 1), field("source", pa.string(), 2), field("id", pa.int64(), 3)])


@pytest.fixture
def file(tmp_path: Path) -> str:
    sids = ["de", "fr", "de", "d", None]
    sources = ["shop_de", "shop_fr", "shop_fr/12@de", "shop_de/7", None]
    pq.write_table(pa.table([sids, sources, [1, 1, 2, 3, 4]], schema=SCHEMA), tmp_path / "a.parquet")
    return f"file://{tmp_path}/a.parquet"


def table(sid_id: int | None = 1) -> Any:
    schema = SimpleNamespace(arrow=lambda: SCHEMA)
    return SimpleNamespace(
        name="shop.items", definition=SimpleNamespace(io_properties={}, sid_id=sid_id, schema=schema)
    )  # fmt: skip


def key_rows(values: dict[str, pa.Scalar]) -> KeyRows:
    return KeyRows(values=values, is_key=lambda texts: texts == {"id": "1"})


@pytest.mark.parametrize(
    ("rows", "places"),
    [
        (SidRows(sid="de", sources=SOURCES), [0, 2]),
        (AboutRows(sid="de", sources=SOURCES), [0, 2, 3]),
        (key_rows({"id": pa.scalar(1, pa.int64())}), [0, 1]),
        (key_rows({"sid": pa.scalar("de"), "id": pa.scalar(1, pa.int64())}), [0]),
        (key_rows({"sid": pa.scalar("de"), "id": pa.scalar(None, pa.int64())}), []),
    ],
)
def test_rows_are_found_in_a_file(file: str, rows: RowsToErase, places: list[int]) -> None:
    assert rows.in_file(table(), file).tolist() == places


MINE = '{"a": "7", "b": "x"}'


def is_mine(texts: Mapping[str, str | None]) -> bool:
    return (texts.get("a"), texts.get("b")) == ("7", "x")


def may_be_mine(texts: Mapping[str, str | None]) -> bool:
    return not is_mine(texts) and texts.get("a", "7") == "7" and texts.get("b", "x") == "x"


@pytest.mark.parametrize(
    ("whose", "places", "unclear"),
    [
        ({}, [0, 3, 5, 6, 7], [4, 8, 10]),
        ({"sid": "de", "sources": SOURCES}, [0, 5, 7], [4, 8]),
        ({"sid": "fr", "sources": frozenset({"shop_fr"})}, [3, 6], [10]),
        ({"sid": "x", "sources": frozenset({"shop_x"})}, [], []),
    ],
)
def test_rejected_rows_are_found_by_key(
    tmp_path: Path, whose: dict[str, Any], places: list[int], unclear: list[int]
) -> None:
    schema = pa.schema([field(name, pa.string(), at) for at, name in enumerate(MISFIT_COLUMNS, 1)])
    rows = [
        ("shop.items", "shop_de", MINE, None), ("shop.items", "shop_de", '{"a": "8", "b": "x"}', MINE),
        ("shop.other", "shop_de", MINE, None), ("shop.items", "shop_fr/7", '{"c": "", "a": "7", "b": "x"}', None),
        ("shop.items", "shop_de", None, None), ("shop.items", "shop_de", None, MINE),
        # Of two tenants of one source; the key was another one then.
        ("shop.items", "shop_x/12@fr", MINE, None), ("shop.items", "shop_x/13@de", '{"a": "7"}', MINE),
        # An expression gave a part of it no value; the other part says who it is not; NULL where there is no key.
        ("shop.items", "shop_de", '{"a": "7", "b": null}', None),
        ("shop.items", "shop_de", '{"a": "8", "b": null}', None),
        ("shop.items", "shop_fr", '{"b": null}', '{"c": "1"}'),
        ("shop.items", "shop_fr", None, '{"a": "7", "b": null}'),
    ]  # fmt: skip
    pq.write_table(
        pa.table([list(column) for column in zip(*rows, strict=True)], schema=schema), tmp_path / "r.parquet"
    )
    told = SimpleNamespace(definition=SimpleNamespace(io_properties={}, schema=SimpleNamespace(arrow=lambda: schema)))
    mine = MisfitRows(target="shop.items", is_key=is_mine, may_be_key=may_be_mine, **whose)
    path = f"file://{tmp_path}/r.parquet"
    assert mine.in_file(cast("Any", told), path).tolist() == places
    assert mine.unclear(cast("Any", told), path) == len(unclear)
    both = dataclasses.replace(mine, with_unclear=True)
    assert both.in_file(cast("Any", told), path).tolist() == sorted(places + unclear)
    assert both.unclear(cast("Any", told), path) == 0


@pytest.mark.parametrize(("values", "count"), [({}, 2), ({"sid": pa.scalar("de")}, 1)])
def test_events_that_gave_the_key_to_another_row_are_counted(
    tmp_path: Path, values: dict[str, pa.Scalar], count: int
) -> None:
    old_key = field("_old_key", pa.map_(pa.string(), pa.string()), 4)
    schema = pa.schema([SCHEMA.field(0), SCHEMA.field(2), old_key])
    keys = [None, [("id", "1")], [("id", "2")], [("id", "1")]]
    pq.write_table(pa.table([["de", "de", "de", "fr"], [1, 7, 8, 9], keys], schema=schema), tmp_path / "a.parquet")
    definition = SimpleNamespace(io_properties={}, schema=SimpleNamespace(arrow=lambda: schema))
    for kind, counted in ((TableType.CHANGELOG, count), (TableType.APPEND, 0)):
        told: Any = SimpleNamespace(definition=definition, target=SimpleNamespace(type=kind))
        assert key_rows(values).naming(told, f"file://{tmp_path}/a.parquet") == counted


def test_a_table_without_sids_is_refused(file: str) -> None:
    with pytest.raises(LakeError, match="it has no column sid"):
        SidRows(sid="de", sources=SOURCES).in_file(table(sid_id=None), file)


@pytest.mark.parametrize(
    ("sid", "sids", "may_be"),
    [
        ("de", None, True),
        ("fr", None, False),
        (None, ("a", "x"), True),
        (None, ("e", "x"), False),
        (None, None, True),
    ],
)
def test_files_of_others_are_left_out(sid: str | None, sids: tuple[str, str] | None, may_be: bool) -> None:
    entry = FileEntry(number=1, path="a", rows=1, sid=sid, sids=sids)
    assert SidRows(sid="de", sources=SOURCES).may_be_in(entry) is may_be
    assert key_rows({"sid": pa.scalar("de")}).may_be_in(entry) is may_be
    assert key_rows({"id": pa.scalar(1)}).may_be_in(entry)


def test_only_what_is_noted_of_its_sources_goes() -> None:
    rows = SidRows(sid="de", sources=SOURCES)
    names = ["shop_de", "shop_de/7", "shop_x/12@de", "shop_x/12@fr", "shop_fr"]
    assert [rows.is_of(name) for name in names] == [True, True, True, False, False]
    others = [AboutRows(sid="de", sources=SOURCES), key_rows({})]
    assert not any(one.is_of("shop_de") for one in others)
