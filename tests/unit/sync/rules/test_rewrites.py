"""What explains that a table has another file."""

from __future__ import annotations

import pytest

from kuvasz.config.model import TableConfig
from kuvasz.config.sources import SourceTableSpec
from kuvasz.model import TableName, TableType
from kuvasz.source.catalog.relation_files import RelationFile
from kuvasz.state.ports import KnownFile
from kuvasz.sync.rules import rewrites

LAST = (1 << 32) - 1  #: transaction before they come round


def spec_of(kind: TableType) -> SourceTableSpec:
    table = TableName(schema="public", name="items")
    config = TableConfig.model_validate({"type": kind})
    return SourceTableSpec(table=table, config=config, namespace="shop", target="items", has_sid=False)


def test_all_truncates_are_not_remembered_for_ever() -> None:
    known = rewrites.known(RelationFile(file=5, file_xid=3, horizon=4))
    assert known == KnownFile(file=5, horizon=4)
    assert rewrites.truncated(rewrites.truncated(known, 7), 7).truncated == (7,)
    for xid in range(20):
        known = rewrites.truncated(known, xid)
    assert known.truncated == (12, 13, 14, 15, 16, 17, 18, 19)


@pytest.mark.parametrize("kind", list(TableType))
def test_a_truncate_of_the_stream_explains_its_own_file(kind: TableType) -> None:
    known = KnownFile(file=5, horizon=100, truncated=(90, 120))
    assert rewrites.is_explained(spec_of(kind), known, RelationFile(file=6, file_xid=120, horizon=150))
    assert not rewrites.is_explained(spec_of(kind), known, RelationFile(file=6, file_xid=110, horizon=150))


@pytest.mark.parametrize("kind", list(TableType))
@pytest.mark.parametrize(
    ("horizon", "truncated", "file_xid", "is_since"),
    [(100, 110, 120, True), (100, 130, 120, False), (100, 90, 120, False), ((5 << 32) + LAST, LAST, 3, True)],
)
def test_one_in_a_savepoint_has_another_number(
    kind: TableType, horizon: int, truncated: int, file_xid: int, is_since: bool
) -> None:
    """What can be compared is, without need; of what cannot, a TRUNCATE since the last look is taken for it."""
    known = KnownFile(file=5, horizon=horizon, truncated=(truncated,))
    now = RelationFile(file=6, file_xid=file_xid, horizon=horizon + 100)
    is_comparable = kind in {TableType.CLONE, TableType.HISTORY}
    assert rewrites.is_explained(spec_of(kind), known, now) == (is_since and not is_comparable)
