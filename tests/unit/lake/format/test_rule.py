"""By which rule of the map rows were made: told apart where rows would be other ones, and nowhere else."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from kuvasz.errors import OtherRule
from kuvasz.lake.format import rule
from kuvasz.model import TableName, TableType
from kuvasz.ports import Feed, Target
from tests.support.changes import ITEMS

PLAIN = Target(name="shop.items")
FEED = Feed(target="shop.items", source="eu", sid="eu", table=TableName(schema="public", name="items"))
FULL = Target(
    name="shop.items", filter="country <> 'XX'", set={"id": "id", "n": "upper( a )"}, types={"a": "string"},
    mask={"n": "hmac", "m": "redact"}, mask_secret=b"0123456789abcdef", out_of_range="clamp",
)  # fmt: skip


def changed(target: Target, **facts: object) -> tuple[str, ...]:
    return rule.others(rule.of(target, {}), rule.of(dataclasses.replace(target, **facts), {}))


def why_copy(noted: str | None, target: Target) -> str:
    return rule.why_copy(noted, rule.of(target, {}), target, FEED)


def test_it_is_short_and_stays_the_same_over_versions() -> None:
    """What stands in tables is compared with it: another text would have every table copied again."""
    assert rule.of(PLAIN, {}) == "-.-.-.-.error"
    assert rule.of(FULL, {}) == "4ca8cc1.531b828.017935c.7fa479b.clamp"
    assert len(rule.of(FULL, {})) <= 40
    assert len(rule.of(dataclasses.replace(FULL, dialect="{}"), {})) <= 50


def test_order_and_white_space_are_no_other_rule() -> None:
    columns = {"n": "upper(a) -- why\n", "id": " id /* the\nkey */"}
    alike = dataclasses.replace(
        FULL, filter="country<>'XX'\n", set=columns, mask={"m": "redact", "n": "hmac"}, name="shop.others"
    )
    assert rule.of(alike, {}) == rule.of(FULL, {})


def test_another_name_of_a_key_is_another_rule() -> None:
    masks = ("hmac", "hmac:one", "hmac:two")
    secret = b"0123456789abcdef"
    made = [rule.of(dataclasses.replace(PLAIN, mask={"n": mask}, mask_secret=secret), {}) for mask in masks]
    assert len(set(made)) == 3
    assert len({text.split(".")[3] for text in made}) == 1, "the secret is the same"
    assert rule.of(dataclasses.replace(PLAIN, mask={"n": "redact"}), {}).split(".")[3] == "-"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("name = 'a b'", "name = 'a  b'"),
        ("`a b` > 1", "`a  b` > 1"),
        (r"name = 'it\' s'", r"name = 'it\'  s'"),
        ("name = '-- a'", "name = '-- b'"),
        ("a - -1", "a --1"),
        ("ab > 1", "a b > 1"),
        ("name = 'a'", "name = 'A'"),
    ],
)
def test_what_is_quoted_or_set_apart_counts(one: str, other: str) -> None:
    assert rule.tokens(one, {}) != rule.tokens(other, {})


def test_a_column_is_the_same_under_another_name() -> None:
    """Who renames a column has to change the map: the rule is what it was, by the column's number."""
    before = dataclasses.replace(
        FULL, set=None, filter="`a` > 1 AND upper(A) = 'A'", mask={"a": "redact", "upper": "redact"}
    )
    now = dataclasses.replace(before, filter="b > 1 AND upper(b) = 'A'", mask={"b": "redact", "upper": "redact"})
    assert rule.of(before, {"a": 3}) == rule.of(now, {"b": 3})
    assert rule.of(before, {"a": 3}) != rule.of(before, {"a": 4}), "another column has the name"
    computed = dataclasses.replace(FULL, set={"n": "a + 1"}, types={"a": "string", "other": "string"})
    renamed = dataclasses.replace(FULL, set={"n": "b + 1"}, types={"b": "string"})
    assert rule.of(computed, {"a": 3}) == rule.of(renamed, {"b": 3}), "types of what is not looked at make no rows"


def test_what_a_rule_names_is_what_it_reads_or_hides() -> None:
    columns = tuple(dataclasses.replace(one, attnum=n) for n, one in enumerate(ITEMS.columns, 1))
    relation = dataclasses.replace(ITEMS, columns=columns)
    masked = dataclasses.replace(PLAIN, mask={"body": "redact"})
    assert rule.numbered(masked, relation, [2]) == {"n": 2, "body": 3}
    assert rule.numbered(dataclasses.replace(masked, set={"body": "n"}), relation, [2]) == {"n": 2}
    assert rule.numbered(masked, ITEMS, [2]) == {}, "nobody knows their numbers"


def test_each_part_is_told_by_its_name() -> None:
    assert changed(FULL, filter=None) == ("filter",)
    assert changed(FULL, set={"id": "id", "n": "lower(a)"}) == ("set",)
    assert changed(FULL, types={}) == ("set",), "what is computed sees the other type"
    assert changed(FULL, mask={"n": "redact", "m": "redact"}) == ("mask",)
    assert changed(FULL, mask_secret=b"fedcba9876543210") == ("pipeline.mask_secret",)
    assert changed(FULL, out_of_range="null") == ("out_of_range",)
    assert changed(FULL, filter="a", mask={}) == ("filter", "mask")


def test_settings_of_spark_that_give_expressions_another_meaning_are_told() -> None:
    berlin = dataclasses.replace(FULL, dialect='{"spark.sql.session.timeZone": "europe/berlin"}')
    assert changed(berlin) == ()
    assert changed(FULL, dialect=berlin.dialect) == ("spark.conf",)
    assert changed(berlin, dialect="") == ("spark.conf",)
    assert changed(berlin, dialect='{"spark.sql.session.timeZone": "asia/tokyo"}', filter="true") == (
        "filter", "spark.conf",
    )  # fmt: skip
    noted = rule.lacking(rule.of(berlin, {}, is_own_alone=True))
    assert rule.others(noted, rule.of(berlin, {}, is_own_alone=True)) == ()
    assert rule.lacks_rows(noted)
    assert rule.is_mixed(rule.beside(noted, rule.of(FULL, {}), keeps_rows=True)), "a person agreed to them"


def test_what_makes_no_other_rows_is_no_other_rule() -> None:
    assert changed(PLAIN, mask_secret=b"fedcba9876543210") == (), "nothing is masked with it"
    assert changed(PLAIN, types={"n": "string"}) == (), "the column is exchanged"
    assert changed(PLAIN, partition_by=("n",), on_schema_change="hold") == ()
    for policy, other in itertools.product(("error", "null", "clamp"), repeat=2):
        is_other = policy not in ("error", other)
        found = changed(dataclasses.replace(PLAIN, out_of_range=policy), out_of_range=other)
        assert found == (("out_of_range",) if is_other else ()), "no value was out of range, or the table had stopped"


def test_a_rule_that_cannot_be_read_is_another_one() -> None:
    assert len(rule.others("damaged", rule.of(PLAIN, {}))) == 5


def test_rows_that_nobody_spoke_of_are_taken_as_they_are() -> None:
    assert why_copy(None, FULL) == ""
    assert why_copy(rule.of(FULL, {}), FULL) == ""


def test_a_clone_is_copied_again() -> None:
    why = "`filter` of the map is another one than the one that its rows were made by"
    assert why_copy(rule.of(FULL, {}), dataclasses.replace(FULL, filter="true")) == why
    why = "`set` and `mask` of the map are other ones than those that its rows were made by"
    assert why_copy(rule.of(FULL, {}), dataclasses.replace(FULL, set=None, mask={})) == why


def test_what_keeps_the_past_waits_for_a_person() -> None:
    for kind, hint in {
        TableType.HISTORY: "kuvasz resync --table shop.items ends the versions that are open and differ, and begins"
        " new ones; or change the map back",
        TableType.APPEND: "kuvasz retry --table shop.items goes on, and rows that are there stay as they are; kuvasz"
        " resync --table shop.items copies it again in place of all rows it has; or change the map back",
    }.items():
        target = dataclasses.replace(PLAIN, type=kind, filter="true")
        with pytest.raises(OtherRule) as caught:
            why_copy(rule.of(PLAIN, {}), target)
        message = "source eu, table public.items: `filter` of the map is another one than the one that its rows were"
        assert str(caught.value) == f"{message} made by\nhint: {hint}"


@pytest.mark.parametrize("kind", [TableType.APPEND, TableType.CHANGELOG])
def test_rows_stay_as_they_are_if_a_person_says_so(kind: TableType) -> None:
    target = dataclasses.replace(PLAIN, type=kind, filter="true", keeps_rows=True)
    assert why_copy(rule.of(PLAIN, {}), target) == ""


def test_nobody_can_agree_to_a_history_of_two_rules() -> None:
    """Its open versions would be compared with rows of the other one."""
    target = dataclasses.replace(PLAIN, type=TableType.HISTORY, filter="true", keeps_rows=True)
    with pytest.raises(OtherRule):
        why_copy(rule.of(PLAIN, {}), target)


def test_rows_that_came_by_replication_are_missing_once_they_are_wanted() -> None:
    """`origin: none` left them out; the other way round no row that is there is too many."""
    every, own = rule.of(FULL, {}), rule.of(FULL, {}, is_own_alone=True)
    assert own == f"{every}.own"
    assert (rule.others(own, every), rule.others(every, own), rule.others(own, own)) == (("origin",), (), ())
    stricter = rule.of(dataclasses.replace(FULL, out_of_range="null"), {})
    assert rule.others(own, stricter) == ("out_of_range", "origin")


def test_values_that_another_rule_made_are_known_to_be_there() -> None:
    """A person agreed to them: what comes later is the map's, but is not to be taken from those."""
    noted, now = rule.of(PLAIN, {}), rule.of(dataclasses.replace(PLAIN, mask={"n": "redact"}), {})
    assert rule.beside(noted, now, keeps_rows=False) == now
    mixed = rule.beside(noted, now, keeps_rows=True)
    assert (mixed, rule.is_mixed(mixed), rule.is_mixed(now)) == (f"{now}.kept", True, False)
    assert rule.others(mixed, now) == (), "it is no other rule"
    assert rule.beside(mixed, now, keeps_rows=False) == mixed, "until all rows are copied"
    filtered = rule.of(dataclasses.replace(PLAIN, filter="n > 1"), {}, is_own_alone=True)
    assert not rule.is_mixed(rule.beside(noted, filtered, keeps_rows=True)), "other rows, and no other values"
    assert rule.others(rule.beside(mixed, rule.of(PLAIN, {}, is_own_alone=True), keeps_rows=True), noted) == (
        "origin",
    )
