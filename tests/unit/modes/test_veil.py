"""Row messages without what the lake is not to show: it makes the same rows of them."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kuvasz.errors import OtherRule, TableError
from kuvasz.lake.format.binding import bind
from kuvasz.lake.format.schema import LakeSchema, wanted
from kuvasz.model import Column, Relation, ReplicaIdentity, Segment, TableType
from kuvasz.modes import dispatch, veil
from kuvasz.modes.row_rules import Input, Transform
from kuvasz.modes.shape import Shape
from kuvasz.modes.transaction_facts import Facts
from kuvasz.modes.veil import LEFT_OUT, Veil
from kuvasz.parking import relations
from kuvasz.ports import Target
from tests.support.changes import INT4, SAME, TARGET, TEXT, Sender, delete, feed, insert, relation, target, update
from tests.support.examples import examples
from tests.support.wires import STRING, message

SECRET = b"a secret of sixteen characters"
WIDE = relation(Column(name="card", pg_type=INT4), Column(name="secret", pg_type=TEXT))


def mapped(**options: Any) -> Target:
    return dataclasses.replace(target(), **{"mask_secret": SECRET, **options})


ENTRY = {"mask": {"body": "hmac", "card": "redact"}, "exclude": frozenset({"secret"})}


def veils(of: Target, found: Relation = WIDE) -> dict[str, str]:
    segment = Veil(of).over(Sender(relation=found).one(message("I", [b"1"] * len(found.columns))))
    return {column.name: column.veil for column in segment.relation.columns if column.veil}


def shape_of(wants: Target, found: Relation) -> Shape:
    """The shape that the lake works out: masked columns are texts there."""
    plain = dataclasses.replace(wants, mask={})
    seen = dataclasses.replace(
        found,
        columns=tuple(
            dataclasses.replace(column, pg_type=TEXT) if column.name in wants.mask else column
            for column in found.columns
        ),
    )
    key = ("id",)
    bound = bind(plain, LakeSchema(schema_id=0, fields=wanted(plain, seen)), key, bytes(16), feed(), seen)
    bindings = tuple(dataclasses.replace(one, mask=wants.mask.get(one.name)) for one in bound.bindings)
    return veil.unveil(dataclasses.replace(bound, bindings=bindings, mask_secret=wants.mask_secret), found, TARGET)


def applied(wants: Target, segment: Segment) -> list[Any]:
    facts = Facts.of(np.array([[100, 1_000_000, 7, len(segment.lengths), 0]], np.int64))
    needs = wants.type in {TableType.CHANGELOG, TableType.HISTORY}
    data = np.frombuffer(bytes(segment.data), np.uint8)
    shape = shape_of(wants, segment.relation)
    try:
        found = dispatch.apply_changes(shape, data, segment.lengths, *[facts] * needs)
    except TableError as error:  # an unsent value of a row that was deleted before
        return [str(error)]
    made = [getattr(found, field.name) for field in dataclasses.fields(found)]
    return [repr(one.to_pylist() if hasattr(one, "to_pylist") else one) for one in made]


TEXTS = st.none() | st.text(max_size=6) | st.just(SAME)
ROWS = st.lists(
    st.one_of(
        st.builds(lambda key, n, *more: ("I", key, n, more), st.integers(1, 3), st.integers(0, 9),
                  *[st.none() | st.text(max_size=6)] * 3),
        st.builds(lambda key, n, *more: ("U", key, n, more), st.integers(1, 3), st.integers(0, 9), *[TEXTS] * 3),
        st.builds(lambda key: ("D", key, 0, ()), st.integers(1, 3)),
    ), min_size=1, max_size=12,
)  # fmt: skip


def rendered(row: tuple) -> bytes:
    tag, key, n, more = row
    if tag == "D":
        return message("D", old=[str(key).encode(), None, None, None, None], old_tag="K")
    cells = [value if value is None or value is SAME else value.encode() for value in more]
    return message(tag, [str(key).encode(), str(n).encode(), *cells])


@settings(max_examples=examples(150), deadline=None)
@given(steps=ROWS, table_type=st.sampled_from(TableType))
def test_the_lake_makes_the_same_rows_of_it(steps: list[tuple], table_type: TableType) -> None:
    wants = mapped(**ENTRY, type=table_type)
    plain = Sender(relation=WIDE).one(*[rendered(row) for row in steps])
    assert applied(wants, Veil(wants).over(plain)) == applied(wants, plain)


@settings(max_examples=examples(60), deadline=None)
@given(steps=ROWS)
def test_old_rows_and_keys_are_hidden_alike(steps: list[tuple]) -> None:
    """The key is masked, and with REPLICA IDENTITY FULL every column comes twice."""
    whole = dataclasses.replace(
        WIDE, identity=ReplicaIdentity.FULL,
        columns=tuple(dataclasses.replace(column, is_key=True) for column in WIDE.columns),
    )  # fmt: skip
    wants = mapped(**{**ENTRY, "mask": {**ENTRY["mask"], "id": "hmac"}}, key=("id",))  # type: ignore[dict-item]
    rows = []
    for tag, key, n, more in steps:
        cells = [str(key).encode(), str(n).encode(), *(b"x" if one in {None, SAME} else one.encode() for one in more)]
        cells += [b"y"] * (5 - len(cells))
        rows.append(
            message(tag, None if tag == "D" else cells, None if tag == "I" else cells, "O" if tag != "I" else "")
        )
    plain = Sender(relation=whole).one(*rows)
    assert applied(wants, Veil(wants).over(plain)) == applied(wants, plain)


def test_no_value_that_is_hidden_is_in_it() -> None:
    rows = [
        insert(1, 7, "Zbody", "Zcard", "Zsecret"),
        message("U", [b"2", b"7", b"Zbody", b"Zcard", SAME], [b"1", b"7", b"Zold", None, b"Zold"], "O"),
        delete(1),
    ]
    rows[2] = message("D", old=[b"1", None, b"Zold", b"Zcard", b"Zsecret"], old_tag="O")
    segment = Sender(relation=WIDE).one(*rows)
    found = Veil(mapped(**ENTRY)).over(segment)
    assert isinstance(found, Segment)
    assert b"Z" not in bytes(found.data)
    assert int(found.lengths.sum()) == len(found.data)
    assert found.transactions is segment.transactions


def test_what_is_not_the_maps_to_hide_stays_as_it_is() -> None:
    eu = Sender()
    plain, truncation = eu.one(insert(1), update(2, 3, SAME, old=1), delete(2)), eu.truncation()
    for wants in (mapped(), mapped(mask={"other": "hmac"})):
        assert Veil(wants).over(plain) is plain
    assert Veil(mapped(mask={"body": "hmac"})).over(truncation) is truncation


def test_what_an_expression_may_look_at_stays_as_it_was_sent() -> None:
    whole = {"body": veil.of("hmac", SECRET), "card": "redact", "secret": LEFT_OUT}
    assert veils(mapped(**ENTRY)) == whole
    assert veils(mapped(**ENTRY, filter="upper(CARD) > 'x' or secret is null")) == {"body": whole["body"]}
    assert veils(mapped(**ENTRY, filter="struct(*) is not null")) == {}
    assert veils(mapped(**ENTRY, set={"body": "upper(body)"})) == {}


def test_a_key_is_hidden_only_where_it_still_tells_rows_apart() -> None:
    assert veils(mapped(mask={"id": "hmac"})) == {"id": veil.of("hmac", SECRET)}
    assert veils(mapped(mask={"id": "hmac:one"})) == {"id": veil.of("hmac:one", SECRET)}
    assert len({veil.of(method, SECRET) for method in ("hmac", "hmac:one", "hmac:two", "redact", None)}) == 5
    assert veils(mapped(mask={"id": "redact"}, exclude=frozenset({"id"}))) == {}
    assert veils(mapped(mask={"id": "redact"})) == {}


def test_of_columns_with_other_names_than_the_maps_none_is_left_out() -> None:
    """A column may have been given another name meanwhile, and nobody knows which."""
    assert veils(mapped(columns=frozenset({"id", "body"}))) == dict.fromkeys(("n", "card", "secret"), LEFT_OUT)
    assert veils(mapped(columns=frozenset({"id", "name"}))) == {}
    assert veils(mapped(exclude=frozenset({"secret", "pin"}))) == {}


def test_a_message_that_cannot_be_taken_apart_stays_as_it_is() -> None:
    for row in (b"I\0\0\0\0N", message("I", [b"1", b"7", b"\xff", b"1", b"s"])):
        segment = Sender(relation=WIDE).one(row)
        assert Veil(mapped(**ENTRY)).over(segment) is segment


@pytest.mark.parametrize(
    ("now", "why"),
    [
        (mapped(mask={"body": "redact", "card": "redact"}, exclude=frozenset({"secret"})), "body"),
        (mapped(mask={"card": "redact"}, exclude=frozenset({"secret"})), "body"),
        (mapped(**ENTRY, mask_secret=b"another secret of characters"), "body"),
        (mapped(mask={"body": "hmac"}, exclude=frozenset({"secret"})), "card"),
        (mapped(mask=ENTRY["mask"]), "secret"),
    ],
)
def test_another_map_is_refused(now: Target, why: str) -> None:
    hidden = Veil(mapped(**ENTRY)).over(Sender(relation=WIDE).one(insert(1, 7, "b", "1", "s")))
    with pytest.raises(OtherRule, match=f"column {why}: its parked values were ") as caught:
        shape_of(now, hidden.relation)
    assert "kuvasz resync --table shop.items" in (caught.value.hint or "")


def test_an_expression_that_would_look_at_it_is_refused() -> None:
    hidden = Veil(mapped(**ENTRY)).over(Sender(relation=WIDE).one(insert(1, 7, "b", "1", "s"))).relation
    shape = shape_of(mapped(**ENTRY), hidden)
    looks = Transform(place="", inputs=(Input(name="body", column=2, type=STRING),))
    with pytest.raises(OtherRule):
        veil.unveil(dataclasses.replace(shape, transform=looks), hidden, TARGET)


def test_a_map_that_masks_more_masks_what_came_before() -> None:
    hidden = Veil(mapped(mask={"card": "redact"})).over(Sender(relation=WIDE).one(insert(1, 7, "b", "1", "s")))
    assert isinstance(hidden, Segment)
    plain = Sender(relation=WIDE).one(insert(1, 7, "b", "1", "s"))
    assert applied(mapped(**ENTRY), hidden) == applied(mapped(**ENTRY), plain)


def test_a_log_keeps_what_was_done() -> None:
    hidden = Veil(mapped(**ENTRY)).over(Sender(relation=WIDE).one(insert(1, 7, "b", "1", "s"))).relation
    assert relations.parse(relations.render(hidden)) == hidden
    assert all("veil" not in column for column in json.loads(relations.render(WIDE))["columns"])
