from __future__ import annotations

import pytest

from kuvasz.model import ReplicaIdentity, TableName
from kuvasz.source.catalog import key
from kuvasz.source.catalog.key import Key, UniqueIndex

TABLE = TableName(schema="public", name="Orders")
PRIMARY = UniqueIndex(name="pk", columns=("id",), is_primary=True)
OTHER = UniqueIndex(name="u", columns=("b", "a"))
DEFAULT, FULL, INDEX, NOTHING = (
    ReplicaIdentity.DEFAULT, ReplicaIdentity.FULL, ReplicaIdentity.INDEX, ReplicaIdentity.NOTHING,
)  # fmt: skip


def unique(**changes):
    return UniqueIndex(**{"name": "u", "columns": ("a",), **changes})


@pytest.mark.parametrize(
    ("identity", "indexes", "columns"),
    [
        (DEFAULT, [PRIMARY, OTHER], ("id",)),
        (FULL, [PRIMARY], ("id",)),
        (INDEX, [PRIMARY, unique(columns=("b", "a"), is_identity=True)], ("b", "a")),
    ],
)
def test_a_key_is_that_of_the_replica_identity(identity, indexes, columns):
    assert key.decide(TABLE, identity, indexes) == Key(columns=columns)


@pytest.mark.parametrize(
    ("identity", "indexes", "why", "mend", "can_update"),
    [
        (DEFAULT, [], "no primary key", 'ALTER TABLE "public"."Orders" REPLICA IDENTITY FULL;', False),
        (DEFAULT, [OTHER], "no primary", 'ALTER TABLE "public"."Orders" REPLICA IDENTITY USING INDEX "u";', False),
        (NOTHING, [PRIMARY], "NOTHING", 'ALTER TABLE "public"."Orders" REPLICA IDENTITY DEFAULT;', False),
        (INDEX, [PRIMARY], "was dropped", 'ALTER TABLE "public"."Orders" REPLICA IDENTITY DEFAULT;', False),
        (FULL, [], "as a whole", "", True),
        (FULL, [OTHER], "as a whole", 'ALTER TABLE "public"."Orders" REPLICA IDENTITY USING INDEX "u";', True),
        (
            DEFAULT, [unique(is_not_null=False)], "no primary key",
            'ALTER TABLE "public"."Orders" ALTER COLUMN "a" SET NOT NULL;'
            ' ALTER TABLE "public"."Orders" REPLICA IDENTITY USING INDEX "u";', False,
        ),
        (
            DEFAULT, [UniqueIndex(name="pk", columns=("id",), is_primary=True, is_immediate=False)], "deferrable",
            'ALTER TABLE "public"."Orders" REPLICA IDENTITY FULL;', False,
        ),
        (
            DEFAULT, [UniqueIndex(name="pk", columns=("g",), is_primary=True, has_generated=True)], "generated",
            'ALTER TABLE "public"."Orders" REPLICA IDENTITY FULL;', False,
        ),
    ],
)  # fmt: skip
def test_without_a_key_the_reason_ends_with_the_sql_that_mends_it(identity, indexes, why, mend, can_update):
    found = key.decide(TABLE, identity, indexes)
    assert found.columns == ()
    assert why in found.why_not.split(";")[0]
    assert found.mend == mend
    assert mend in found.why_not
    assert found.can_update is can_update


@pytest.mark.parametrize(
    ("identity", "indexes", "why", "mend"),
    [
        (FULL, [PRIMARY], "generated column g, h", 'ALTER TABLE "public"."Orders" REPLICA IDENTITY DEFAULT;'),
        (FULL, [OTHER], "generated column g", 'ALTER TABLE "public"."Orders" REPLICA IDENTITY USING INDEX "u";'),
        (FULL, [], "generated column g", ""),
        (DEFAULT, [], "no primary key", ""),
    ],
)
def test_the_whole_row_is_no_identity_where_columns_are_not_published(identity, indexes, why, mend):
    found = key.decide(TABLE, identity, indexes, ["g", "h"])
    assert (found.columns, found.can_update, found.mend) == ((), False, mend)
    assert why in found.why_not.split(";")[0]
    assert (mend or 'ALTER TABLE "public"."Orders" ADD PRIMARY KEY (…), REPLICA IDENTITY DEFAULT') in found.why_not


@pytest.mark.parametrize(
    "index",
    [
        unique(is_partial=True), unique(is_valid=False), unique(is_immediate=False), unique(has_generated=True),
        unique(columns=("", "a")),
    ],
)  # fmt: skip
def test_an_index_that_cannot_be_an_identity_is_not_proposed(index):
    assert '"u"' not in key.decide(TABLE, DEFAULT, [index]).why_not


def test_the_smallest_suitable_index_is_proposed():
    wide = UniqueIndex(name="wide", columns=("a", "b"))
    assert 'INDEX "u"' in key.decide(TABLE, DEFAULT, [wide, unique()]).mend


@pytest.mark.parametrize(
    ("identity", "leaf", "leaf_identity", "expected"),
    [
        (DEFAULT, Key(columns=("a", "b")), DEFAULT, False),
        (DEFAULT, Key(columns=("b", "a")), INDEX, False),
        (DEFAULT, Key(columns=("a",)), INDEX, True),
        (DEFAULT, Key(can_update=False), NOTHING, True),
        (DEFAULT, Key(), FULL, False),
        (DEFAULT, Key(can_update=False), FULL, True),
        (FULL, Key(columns=("a", "b")), DEFAULT, True),
        (FULL, Key(), FULL, False),
    ],
)
def test_a_partition_must_log_what_its_root_says(identity, leaf, leaf_identity, expected):
    assert key.differs(Key(columns=("a", "b")), identity, leaf, leaf_identity) is expected


def test_a_partition_is_aligned_by_an_index_of_the_same_columns_or_full():
    assert key.align(TABLE, [PRIMARY, OTHER], ["a", "b"]).endswith('REPLICA IDENTITY USING INDEX "u";')
    assert key.align(TABLE, [PRIMARY, OTHER], ["id"]).endswith("REPLICA IDENTITY DEFAULT;")
    assert key.align(TABLE, [PRIMARY], []).endswith("REPLICA IDENTITY FULL;")
