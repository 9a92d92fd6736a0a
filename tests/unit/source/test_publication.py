from __future__ import annotations

import dataclasses

import pytest

from kuvasz.errors import SourceRefused
from kuvasz.model import Column, PgType, Relation, ReplicaIdentity, TableName
from kuvasz.source import publication
from kuvasz.source.catalog import membership
from kuvasz.source.catalog.table import Ancestor, SourceTable, TableKind
from kuvasz.source.publication import Member, Publication

INT4 = PgType(oid=23, name="int4")


def table(name="t", oid=1, *, kind=TableKind.TABLE, **facts):
    columns = (Column(name="id", pg_type=INT4, is_key=True, attnum=1), Column(name="v", pg_type=INT4, attnum=2))
    relation = Relation(
        oid=oid, table=TableName(schema="public", name=name), identity=ReplicaIdentity.DEFAULT, columns=columns
    )
    given = {"pages": 0, "page_bytes": 8192, "toast_bytes": 0, "row_estimate": None, "primary_key": ("id",),
             "identity_index": (), "generated": (), "leaves": ()}  # fmt: skip
    return SourceTable(relation=relation, kind=kind, **{**given, **facts})


def member(name="t", oid=1, **facts):
    return Member(oid=oid, table=TableName(schema="public", name=name), **facts)


def existing(*members, **facts):
    return Publication(name="p", members=members, **facts)


def test_a_new_publication():
    changes = publication.plan(None, "p", [table("a", 1), table("b", 2, kind=TableKind.PARTITIONED)])
    assert changes.is_new
    assert changes.statements == (
        'CREATE PUBLICATION "p" FOR TABLE ONLY "public"."a", "public"."b" WITH (publish = '
        "'insert, update, delete, truncate', publish_via_partition_root = true);",
    )


def test_an_empty_publication_can_be_made():
    assert "FOR TABLE" not in publication.plan(None, "p", []).statements[0]


@pytest.mark.parametrize(
    "current",
    [existing(member()), existing(is_for_all=True), existing(schemas=frozenset({"public"})),
     existing(member(columns=frozenset({"id", "v", "more"})))],
)  # fmt: skip
def test_a_publication_that_fits_is_left_alone(current):
    assert not publication.plan(current, "p", [table()])


def test_only_differences_are_mended():
    changes = publication.plan(existing(member("a", 1), member("old", 9)), "p", [table("a", 1), table("b", 2)])
    assert changes.statements == ('ALTER PUBLICATION "p" ADD TABLE ONLY "public"."b";',)
    assert changes.tidying == ('ALTER PUBLICATION "p" DROP TABLE ONLY "public"."old";',)
    assert [str(name) for name in changes.added + changes.dropped] == ["public.b", "public.old"]


def test_a_table_that_was_dropped_and_made_anew_is_added_again():
    changes = publication.plan(existing(member("t", 1)), "p", [table("t", 2)])
    assert [str(name) for name in changes.added] == ["public.t"]


def test_a_publication_of_many_tables_takes_work_in_proportion():
    """Whoever owns a source may name any number of them."""
    asked = 0

    class Counted:
        columns = row_filter = None

        def __init__(self, oid: int) -> None:
            self._oid = oid
            self.table = TableName(schema="public", name=f"t{oid}")

        @property
        def oid(self) -> int:
            nonlocal asked
            asked += 1
            return self._oid

    def work(count: int) -> int:
        nonlocal asked
        asked = 0
        current = existing(*map(Counted, range(1, count + 1)))
        assert not publication.plan(current, "p", [table(f"t{oid}", oid) for oid in range(1, count + 1)])
        return asked

    twenty, forty, eighty = work(20), work(40), work(80)
    assert eighty - forty <= 2.1 * (forty - twenty), (twenty, forty, eighty)


def test_options_are_mended():
    current = existing(member(), is_via_root=False, operations=("insert", "update", "delete"))
    assert publication.plan(current, "p", [table()]).statements == (
        "ALTER PUBLICATION \"p\" SET (publish = 'insert, update, delete, truncate',"
        " publish_via_partition_root = true);",
    )


def test_no_table_is_published_whose_updates_would_then_fail():
    odd = table(can_update=False, why_no_key="it has no primary key; MEND", mend="MEND")
    with pytest.raises(SourceRefused, match=r"public\.t cannot be published.*no primary key") as caught:
        publication.plan(existing(member()), "p", [odd])
    assert caught.value.hint == "MEND"
    assert publication.plan(None, "p", [odd], operations=("insert",)).is_new


def test_what_cannot_be_replicated_is_refused():
    with pytest.raises(SourceRefused, match="it is a view"):
        publication.plan(None, "p", [table(why_unsupported="it is a view")])


@pytest.mark.parametrize(
    ("one", "what"),
    [(member(columns=frozenset({"id"})), "without its columns v"), (member(row_filter=""), "row filter")],
)
def test_a_publication_that_hides_something_is_refused(one, what):
    with pytest.raises(SourceRefused, match=what) as caught:
        publication.plan(existing(one), "p", [table()])
    assert caught.value.hint == (
        'ALTER PUBLICATION "p" DROP TABLE ONLY "public"."t"; ALTER PUBLICATION "p" ADD TABLE ONLY "public"."t";'
    )


def test_names_are_those_of_the_configuration():
    assert publication.object_name("Shop", "EU-1") == "kuvasz_shop_eu_1"
    assert len(publication.object_name("x" * 80, "eu")) == 63
    assert publication.object_name("x" * 80, "eu") != publication.object_name("x" * 80, "us")


@pytest.mark.parametrize("current", [existing(is_for_all=True), existing(schemas=frozenset({"public"}))])
def test_a_partition_whose_root_is_published_is_refused(current):
    partition = table("p", ancestors=(Ancestor(oid=2, table=TableName(schema="public", name="root")),))
    with pytest.raises(SourceRefused) as caught:
        publication.plan(current, "p", [partition])
    assert "publishes public.root as well, so changes of its partition public.p come as changes of that" in str(
        caught.value
    )
    assert not publication.plan(existing(member("p")), "p", [partition])


def test_a_partition_beside_its_root_is_refused():
    root, middle = (Ancestor(oid=oid, table=TableName(schema="public", name=f"of_{oid}")) for oid in (3, 2))
    partition = table("p", ancestors=(middle, root))
    assert publication.within_wanted(partition, {1, 9}) is None
    for wanted, above in (({1, 2}, middle), ({1, 2, 3}, root)):
        error = publication.within_wanted(partition, wanted)
        assert f"public.p is a partition of {above.table}, which the map takes in as well" in str(error)


LISTED = {"column_list": ("id", "v"), "is_owned": True}


def test_a_new_table_gets_its_list() -> None:
    (statement,) = publication.plan(None, "p", [table(**LISTED)]).statements
    assert 'FOR TABLE ONLY "public"."t" ("id", "v") WITH' in statement
    (statement,) = publication.plan(existing(), "p", [table(**LISTED)]).statements
    assert statement == 'ALTER PUBLICATION "p" ADD TABLE ONLY "public"."t" ("id", "v");'
    (statement,) = publication.plan(existing(schemas=frozenset({"other"})), "p", [table(**LISTED)]).statements
    assert statement == 'ALTER PUBLICATION "p" ADD TABLE ONLY "public"."t";', "no list beside a schema"


@pytest.mark.parametrize("columns", [None, frozenset({"id"}), frozenset({"id", "v", "more"})])
def test_a_table_that_is_published_gets_another_list(columns: frozenset[str] | None) -> None:
    changes = publication.plan(existing(member(columns=columns)), "p", [table(**LISTED)])
    assert changes
    assert changes.statements == ()
    assert changes.relisting == (
        'ALTER PUBLICATION "p" DROP TABLE ONLY "public"."t";',
        'ALTER PUBLICATION "p" ADD TABLE ONLY "public"."t" ("id", "v");',
    )


def test_a_list_is_taken_away() -> None:
    changes = publication.plan(
        existing(member(columns=frozenset({"id"}))), "p", [table(column_list=(), is_owned=True)]
    )
    assert changes.relisting[1] == 'ALTER PUBLICATION "p" ADD TABLE ONLY "public"."t";'


@pytest.mark.parametrize(
    ("facts", "current"),
    [({**LISTED, "is_owned": False}, {}), (LISTED, {"is_owned": False}), ({"is_owned": True}, {})],
)
def test_a_list_that_is_not_ours_to_alter_is_judged_as_it_is(facts: dict, current: dict) -> None:
    wide = existing(member(columns=frozenset({"id", "v", "more"})), **current)
    assert not publication.plan(wide, "p", [table(**facts)])
    with pytest.raises(SourceRefused, match="without its columns v"):
        publication.plan(existing(member(columns=frozenset({"id"})), **current), "p", [table(**facts)])


def test_a_list_by_which_updates_fail_goes_or_is_refused() -> None:
    full = table(column_list=(), is_owned=True)
    full = dataclasses.replace(full, relation=dataclasses.replace(full.relation, identity=ReplicaIdentity.FULL))
    current = existing(member(columns=frozenset({"id", "v"})))
    assert publication.plan(current, "p", [full]).relisted
    with pytest.raises(SourceRefused, match="by which its UPDATEs fail"):
        publication.plan(dataclasses.replace(current, is_owned=False), "p", [full])
    # A table that only the map keeps from being replicated stays published, but not so.
    assert publication.plan(current, "p", [], left=[table()]).dropped == ()
    assert [str(name) for name in publication.plan(current, "p", [], left=[full]).dropped] == ["public.t"]


@pytest.mark.parametrize(
    ("version", "mode"),
    [(150012, "SHARE ROW"), (150013, "SHARE UPDATE"), (170004, "SHARE ROW"), (160009, "SHARE UPDATE"),
     (180000, "SHARE UPDATE")],
)  # fmt: skip
def test_which_lock_a_list_takes(version: int, mode: str) -> None:
    assert publication.lock_mode(version) == f"{mode} EXCLUSIVE"


CONDITION = membership.marked('("v" = (5))', {2})
MARK = membership.mark_of(CONDITION)
FULL = dataclasses.replace(table().relation, identity=ReplicaIdentity.FULL)


def filtered(condition: str = CONDITION, **facts) -> SourceTable:
    return dataclasses.replace(table(row_filter=condition, is_owned=True, **facts), relation=FULL)


def test_a_new_table_gets_its_row_filter() -> None:
    (statement,) = publication.plan(None, "p", [filtered()]).statements
    assert f'FOR TABLE ONLY "public"."t" WHERE ({CONDITION}) WITH' in statement
    (statement,) = publication.plan(existing(schemas=frozenset({"other"})), "p", [filtered()]).statements
    assert "WHERE" not in statement, "none beside a schema"


def test_a_row_filter_comes_changes_and_goes() -> None:
    other = membership.mark_of(membership.marked('("v" = (6))', {2}))
    drop = 'ALTER PUBLICATION "p" DROP TABLE ONLY "public"."t";'
    add = 'ALTER PUBLICATION "p" ADD TABLE ONLY "public"."t"'
    assert not publication.plan(existing(member(row_filter=MARK)), "p", [filtered()])
    for now in (None, other):
        changes = publication.plan(existing(member(row_filter=now)), "p", [filtered()])
        assert changes.relisting == (drop, f"{add} WHERE ({CONDITION});")
    changes = publication.plan(existing(member(row_filter=MARK)), "p", [filtered("")])
    assert changes.relisting == (drop, f"{add};")


def test_a_row_filter_that_cannot_be_altered_has_a_person_alter_it() -> None:
    for current, one in (
        (existing(member(row_filter=MARK), is_owned=False), filtered("")),
        (existing(member(row_filter=MARK)), dataclasses.replace(filtered(""), is_owned=False)),
    ):
        with pytest.raises(SourceRefused, match="row filter"):
            publication.plan(current, "p", [one])
    assert not publication.plan(existing(member(), is_owned=False), "p", [filtered()]), "it has all rows"


def test_a_table_that_is_left_as_it_is_is_taken_out_if_its_row_filter_has_updates_fail() -> None:
    current = existing(member(row_filter=MARK))
    assert not publication.plan(current, "p", [], left=[filtered("")])
    assert publication.plan(current, "p", [], left=[table()]).tidying
