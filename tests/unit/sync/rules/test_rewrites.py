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


def test_truncates_of_a_table_that_its_toast_table_explains_are_not_remembered() -> None:
    known = KnownFile(file=5, horizon=4, toast=6)
    assert rewrites.truncated(known, 7) is known


@pytest.mark.parametrize(
    ("known", "now", "is_sure"),
    [
        (KnownFile(file=5, horizon=4), RelationFile(file=5, file_xid=9, horizon=8), True),
        (KnownFile(file=5, horizon=4), RelationFile(file=6, file_xid=9, horizon=8), False),
        (KnownFile(file=5, horizon=4, toast=7), RelationFile(file=6, file_xid=9, horizon=8, toast=7), True),
        (KnownFile(file=5, horizon=4, toast=7), RelationFile(file=6, file_xid=9, horizon=8, toast=8), False),
        (KnownFile(file=5, horizon=4, toast=7), RelationFile(file=6, file_xid=9, horizon=8), False),
        (KnownFile(file=5, horizon=4, named=(1, 2)), RelationFile(file=6, file_xid=9, horizon=8, named=(2,)), True),
        (KnownFile(file=5, horizon=4, named=(1, 2)), RelationFile(file=6, file_xid=9, horizon=8, named=(3,)), False),
        (KnownFile(file=5, horizon=4), RelationFile(file=6, file_xid=9, horizon=8, named=(3,)), False),
    ],
)
def test_a_table_was_always_logged_if_it_has_its_file_its_toast_table_or_a_name(
    known: KnownFile, now: RelationFile, *, is_sure: bool
) -> None:
    assert rewrites.was_always_logged(known, now) == is_sure


def test_what_was_always_logged_is_known_as_it_is_now() -> None:
    known = KnownFile(file=5, horizon=4, truncated=(3,))
    now = RelationFile(file=5, file_xid=2, horizon=8, toast=7, named=(1,))
    assert rewrites.looked_at(known, now) == KnownFile(file=5, horizon=4, toast=7, named=(1,), truncated=(3,))
    now = RelationFile(file=6, file_xid=2, horizon=8, toast=7, named=(1,))
    assert rewrites.looked_at(known, now) == KnownFile(file=6, horizon=8, toast=7, named=(1,))


@pytest.mark.parametrize("kind", list(TableType))
def test_no_truncate_explains_another_toast_table(kind: TableType) -> None:
    known = KnownFile(file=5, horizon=100, toast=7, truncated=(120,))
    assert not rewrites.is_explained(spec_of(kind), known, RelationFile(file=6, file_xid=120, horizon=150, toast=8))


@pytest.mark.parametrize("kind", list(TableType))
@pytest.mark.parametrize("command", [0, 1, None])
def test_the_first_command_of_a_transaction_is_sure_to_be_its_truncate(kind: TableType, command: int | None) -> None:
    now = RelationFile(file=6, file_xid=120, horizon=150, command=command)
    is_comparable = kind in {TableType.CLONE, TableType.HISTORY}
    assert rewrites.is_doubtful(spec_of(kind), now) == (is_comparable and command != 0)


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
