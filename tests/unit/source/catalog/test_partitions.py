"""How a partition hangs in its tree; the queries are tried on servers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.model import TableName
from kuvasz.source.catalog import partitions
from kuvasz.source.catalog.partitions import Partition

NAME = TableName(schema="public", name="items_1")


@pytest.mark.parametrize(
    ("links", "xid", "newest"),
    [("11:700", "700", [11]), ("10:700 11:701", "701", [11]), ("10:702 11:702", "702", [10, 11]),
     ("10:703 11:700", "703", [10])],
)  # fmt: skip
def test_what_hangs_by_the_newest_links_is_known(links: str, xid: str, newest: list[int]) -> None:
    """A whole branch may be attached at once."""
    found = Partition(table=NAME, oid=11, file=11, file_xid=1, links=links, xid=xid, command=0)
    assert found.newest == newest


def test_partitions_are_those_of_each_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "place", lambda _: "shop")
    rows = [(1, "public", "items_1", 11, 12, 700, 5, 13, "11:700", "700", 3)]
    server: Any = SimpleNamespace(execute=lambda *_: SimpleNamespace(fetchall=lambda: rows))
    found = partitions.load(server, [1, 2])
    assert found == {
        1: [
            Partition(
                table=NAME, oid=11, file=12, file_xid=700, file_command=5, toast=13, links="11:700", xid="700",
                command=3,
            )
        ],
        2: [],
    }  # fmt: skip
