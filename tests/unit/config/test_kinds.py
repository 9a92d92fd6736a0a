from __future__ import annotations

import pytest

from kuvasz.config import kinds
from kuvasz.config.model import TableConfig, UrlConfig


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u@h/d", "postgres://u:p@h:5432/d", "postgresql://h", "postgresql:///d?host=/tmp",
        "postgresql://u@/d?host=/tmp/x&port=5", "postgresql://u:p%40@h1:1,h2:2/d?target_session_attrs=primary",
        "postgresql://u@[::1]:5432/d", "postgresql://u@h/d?options=-c%20a%3Db&sslmode=", "postgresql://",
    ],
)  # fmt: skip
def test_every_form_of_a_url_is_kept_as_it_is(url: str) -> None:
    assert UrlConfig(url=url).url.get() == url


@pytest.mark.parametrize(
    "term", ["region", "Region Name", "days(at)", "bucket(16, id)", "truncate(4,name)", "`a(b`", "hours(`odd)`)"]
)
def test_partitions_are_columns_or_transforms(term: str) -> None:
    assert TableConfig(partition_by=(term,)).partition_by == (term,)


@pytest.mark.parametrize("term", ["a", "a desc", "a ASC NULLS LAST", "days(at) desc nulls first", "bucket(8, id)"])
def test_orders_have_a_direction_and_a_place_for_nulls(term: str) -> None:
    assert TableConfig(sort_by=(term,)).sort_by == (term,)


@pytest.mark.parametrize("name", ["", "a b", "a.b", "a`b", "-a", "cut_x", "x" * 129])
def test_a_branch_is_a_name_that_sql_takes_and_no_cut_has(name: str) -> None:
    with pytest.raises(ValueError, match="must be letters, digits, _ and -"):
        TableConfig(branch=name)
    assert TableConfig(branch="audit-2026_1").branch == "audit-2026_1"


def test_decimals_are_normalised() -> None:
    table = TableConfig(decimals={"a": " Decimal( 12 , 2 ) "})
    assert table.decimals == {"a": "decimal(12,2)"}
    assert table.asked_types == {"a": "decimal(12,2)"}


def test_types_of_columns_lose_nothing() -> None:
    table = TableConfig(types={"a": " String", "b": "Decimal(12, 2)"}, decimals={"c": "decimal(5,1)"})
    assert table.asked_types == {"a": "string", "b": "decimal(12,2)", "c": "decimal(5,1)"}
    for wrong in ("int", "varchar", "decimal(39,1)"):
        with pytest.raises(ValueError, match="must be"):
            TableConfig(types={"a": wrong})


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("127.0.0.1:8000", ("127.0.0.1", 8000)),
        ("[::1]:0", ("::1", 0)),
        ("kuvasz.local:65535", ("kuvasz.local", 65535)),
    ],
)
def test_an_address_is_host_and_port(address: str, parts: tuple[str, int]) -> None:
    assert kinds.split_address(address) == parts
