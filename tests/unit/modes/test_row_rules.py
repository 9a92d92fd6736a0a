from __future__ import annotations

import dataclasses
import hashlib
import hmac
import struct

import numpy as np
import pyarrow as pa
import pytest

from kuvasz.decode import tuples
from kuvasz.decode.cells import CUT
from kuvasz.errors import DecodeError
from kuvasz.model import LakeType, ValueType, Wire
from kuvasz.modes import row_rules
from kuvasz.modes.row_rules import Computed, Evaluated, Input, Transform

INT32 = pa.int32()
TEXT = ValueType(kind=LakeType.STRING)
INT = ValueType(kind=LakeType.INT, wire=Wire.INTEGER)
PLAN = Transform(
    place="source eu, table public.t",
    inputs=(Input(name="id", column=0, type=INT), Input(name="body", column=1, type=TEXT)),
    filter="id > 0",
    filter_inputs=(0,),
    computed=(Computed(name="size", text="length(body)", inputs=(1,), type=INT),),
    identity=(0,),
)


def cell(value: object) -> bytes:
    if value is None:
        return b"n"
    if value is ...:
        return b"u"
    return b"t" + struct.pack(">I", len(str(value))) + str(value).encode()


def row(*values: object) -> bytes:
    return struct.pack(">H", len(values)) + b"".join(cell(value) for value in values)


def split(*messages: bytes) -> tuples.RowChanges:
    lengths = np.array([len(message) for message in messages], np.uint32)
    return tuples.split_changes(b"".join(messages), lengths, 2)


def insert(*values: object) -> bytes:
    return b"I\0\0\0\1N" + row(*values)


def update(*values: object, old: tuple | None = None, tag: bytes = b"K") -> bytes:
    return b"U\0\0\0\1" + (b"" if old is None else tag + row(*old)) + b"N" + row(*values)


def delete(*values: object, tag: bytes = b"K") -> bytes:
    return b"D\0\0\0\1" + tag + row(*values)


def test_inputs_are_those_of_new_rows_and_then_of_old_ones() -> None:
    changes = split(insert("1", "a"), delete("2", None), update("3", "c", old=("4", None)))
    assert row_rules.valid_rows(changes).tolist() == [0, 2]
    new = row_rules.inputs_of(PLAN, changes.new, row_rules.valid_rows(changes))
    assert new.to_pydict() == {"i0": [1, 3], "i1": ["a", "c"], "w0": [True, True], "w1": [True, True]}
    old = row_rules.inputs_of(PLAN, changes.old, is_key_only=row_rules.key_only(changes))
    assert old.to_pydict() == {"i0": [2, 4], "i1": [None, None], "w0": [True, True], "w1": [False, False]}


def test_expressions_see_rows_alone_that_carry_what_they_look_at() -> None:
    changes = split(update("1", ...), update("2", None, old=("3", "c"), tag=b"O"), delete("4", None))
    new = row_rules.inputs_of(PLAN, changes.new, row_rules.valid_rows(changes))
    assert new["w1"].to_pylist() == [False, True]
    assert row_rules.key_only(changes).tolist() == [False, True]
    old = row_rules.inputs_of(PLAN, changes.old, is_key_only=row_rules.key_only(changes))
    assert (old["w0"].to_pylist(), old["w1"].to_pylist()) == ([True, True], [True, False])


@pytest.mark.parametrize(("policy", "expected"), [("null", [None]), ("clamp", [9999])])
def test_what_expressions_look_at_goes_by_the_policy_of_the_table(policy: str, expected: list[int | None]) -> None:
    day = Input(name="day", column=1, type=ValueType(kind=LakeType.DATE, wire=Wire.DATE))
    plan = dataclasses.replace(PLAN, inputs=(PLAN.inputs[0], day))
    changes = split(insert("1", "infinity"))
    found = row_rules.inputs_of(plan, changes.new, out_of_range=policy)["i1"].to_pylist()
    assert [day and day.year for day in found] == expected
    with pytest.raises(DecodeError, match="column day: value 'infinity'") as caught:
        row_rules.inputs_of(plan, changes.new)
    assert "`out_of_range: null | clamp`" in str(caught.value.hint)
    key = dataclasses.replace(plan, identity=(0, 1))
    with pytest.raises(DecodeError):
        row_rules.inputs_of(key, changes.new, out_of_range=policy)


def test_rows_outside_the_filter_become_deletions_of_what_was_before() -> None:
    changes = split(
        insert("1", "a"), insert("2", "b"), update("3", "c"), update("4", "d", old=("5", None)), delete("6", None)
    )
    keep = np.array([True, False, False, False, False, False])
    sizes = pa.array([10, 20, 30, 40, None, None], pa.int32())
    by_body = dataclasses.replace(PLAN, filter="body > ''", filter_inputs=(1,))
    out = row_rules.attach(by_body, changes, Evaluated(keep=keep, computed=(sizes,)))
    assert bytes(out.tag) == b"IDDDD"
    olds = [out.old.text(0, number) for number in out.old_row[1:]]
    assert olds == [b"2", b"3", b"5", b"6"]
    assert out.new.computed[0].to_pylist() == [10, 20, 30, 40, None]
    assert out.old.computed[0].to_pylist() == [None, None, 20, 30]
    assert out.outside is not None
    assert out.outside.tolist() == [False, True, False, False, False]


def test_a_whole_old_row_tells_that_a_row_never_was_inside() -> None:
    changes = split(update("1", "a", old=("1", "b"), tag=b"O"), delete("2", "c", tag=b"O"))
    keep = np.array([False, False, False])
    out = row_rules.attach(PLAN, changes, Evaluated(keep=keep, computed=(pa.nulls(3, pa.int32()),)))
    assert out.outside is not None
    assert out.outside.tolist() == [True, True]


def test_a_filter_of_the_key_tells_of_every_row_whether_it_ever_was_inside() -> None:
    changes = split(update("1", "a"), update("2", "b", old=("3", None)), delete("4", None), delete("5", None))
    keep = np.array([False, False, True, False, True])
    out = row_rules.attach(PLAN, changes, Evaluated(keep=keep, computed=(pa.nulls(5, pa.int32()),)))
    assert out.outside is not None
    assert out.outside.tolist() == [True, False, True, False]


def test_a_column_computed_from_unchanged_values_alone_is_unchanged() -> None:
    changes = split(update("1", ...), insert("2", "b"), update("2", ...))
    row_rules.resolve(PLAN, changes)
    assert changes.new.text(1, 2) == b"b"  # from the chunk itself
    keep = np.ones(3, np.bool_)
    out = row_rules.attach(PLAN, changes, Evaluated(keep=keep, computed=(pa.array([None, 1, 1], pa.int32()),)))
    assert out.new.unknown[0].tolist() == [True, False, False]


def test_a_key_that_an_update_leaves_out_is_that_of_its_old_row() -> None:
    again = [update(..., ..., old=(key, None)) for key in ("k1", "k2", "k1")]
    changes = split(insert("k1", "one"), insert("k2", "two"), *again)
    row_rules.resolve(PLAN, changes)
    found = [tuple(changes.new.text(column, row) for column in (0, 1)) for row in (2, 3, 4)]
    assert found == [(b"k1", b"one"), (b"k2", b"two"), (b"k1", b"one")]


@pytest.mark.parametrize("part", ["filter", "computed"])
def test_what_needs_more_than_the_update_carries_is_refused(part: str) -> None:
    both = Computed(name="c", text="concat(id, body)", inputs=(0, 1), type=TEXT)
    plan = Transform(
        place="source eu, table public.t", inputs=PLAN.inputs, identity=(0,),
        filter="body = ''" if part == "filter" else None, filter_inputs=(1,),
        computed=(both,) if part == "computed" else (),
    )  # fmt: skip
    changes = split(update("1", ...))
    values = (pa.array(["x"]),) if part == "computed" else ()
    with pytest.raises(DecodeError, match="large value that 1 updates leave out") as caught:
        row_rules.attach(plan, changes, Evaluated(keep=np.ones(1, np.bool_), computed=values))
    assert "REPLICA IDENTITY FULL" in str(caught.value.hint)


def answer(*values: object, kind: pa.DataType) -> pa.Array:
    """Spark's answers: `...` where the expression failed."""
    return pa.array([None if one is ... else {"v": one} for one in values], pa.struct([("v", kind)]))


def test_where_no_expression_fails_nothing_is_said_of_it() -> None:
    answers = [answer(True, False, kind=pa.bool_()), answer(1, None, kind=pa.int32())]
    judged = row_rules.judged(PLAN, answers, [])
    assert (judged.keep.tolist(), judged.columns[0].to_pylist()) == ([True, False], [1, None])
    assert (judged.failures, judged.undecided, len(judged.columns)) == (None, None, 1)


def test_a_failure_is_told_of_rows_inside_the_filter_and_of_those_that_may_be() -> None:
    answers = [
        answer(True, False, ..., ..., True, False, kind=pa.bool_()), answer(..., ..., ..., 1, None, None, kind=INT32)
    ]  # fmt: skip
    unreadable = [
        row_rules.RefusedInput(row=4, input=1, reason="r"),
        row_rules.RefusedInput(row=5, input=0, reason="s"),
    ]
    judged = row_rules.judged(PLAN, answers, unreadable)
    assert judged.failures is not None
    assert [one and tuple(one.values()) for one in judged.failures.to_pylist()] == [
        (1, -1, None), None, (0, -1, None), (0, -1, None), (1, 1, "r"), (0, 0, "s"),
    ]  # fmt: skip
    assert judged.passing.tolist() == [True, False, True, True, True, True]
    assert judged.keep.tolist() == [True, False, False, False, True, False]
    assert (judged.columns[0].to_pylist(), judged.columns[1:]) == ([None] * 3 + [1] + [None] * 2, (judged.failures,))


def test_without_a_filter_only_computed_columns_fail() -> None:
    plan = dataclasses.replace(PLAN, filter=None, filter_inputs=())
    answers = [answer(True, True, kind=pa.bool_()), answer(..., 1, kind=INT32)]
    judged = row_rules.judged(plan, answers, [row_rules.RefusedInput(row=1, input=1, reason="r")])
    assert judged.failures is not None
    assert [tuple(one.values()) for one in judged.failures.to_pylist()] == [(0, -1, None), (0, 1, "r")]
    assert judged.passing.tolist() == [True, True]


def test_what_cannot_be_read_no_expression_meets() -> None:
    changes = split(delete("1", None), insert("x", "a"), insert("2", "b"))
    rows = row_rules.valid_rows(changes)
    cells, unreadable = row_rules.without_unreadable(PLAN, changes.new, rows)
    assert [(one.row, one.input, one.reason) for one in unreadable] == [(0, 0, "is not the text form of its type")]
    found = row_rules.inputs_of(PLAN, cells, rows)
    assert found.to_pydict() == {"i0": [None, 2], "i1": ["a", "b"], "w0": [False, True], "w1": [True, True]}
    assert changes.new.text(0, 1) == b"x"


@pytest.mark.parametrize(("is_hidden", "shown"), [(False, "value 'Jane' is"), (True, "value *** is")])
def test_what_the_lake_is_not_to_show_errors_do_not_either(is_hidden: bool, shown: str) -> None:
    plan = dataclasses.replace(PLAN, is_hidden=is_hidden)
    with pytest.raises(DecodeError, match="column id: ") as caught:
        row_rules.inputs_of(plan, split(insert("Jane", "b")).new)
    assert shown in caught.value.message.replace(r"\*", "*")


def test_masks_hide_and_stay_the_same() -> None:
    values = pa.array(["a", None, "b", "a"])
    assert row_rules.mask(values, "redact", b"").to_pylist() == ["***", None, "***", "***"]
    secret = b"0123456789abcdef"
    first, none, second, again = row_rules.mask(values, "hmac", secret).to_pylist()
    assert first == again == hmac.new(secret, b"a", hashlib.sha256).hexdigest()
    assert none is None
    assert second != first


def test_a_name_has_pseudonyms_of_its_own_that_no_value_shows() -> None:
    values, secret = pa.array(["a", "one", "one\x01"]), b"0123456789abcdef"
    plain, one, other = (
        row_rules.mask(values, method, secret).to_pylist() for method in ("hmac", "hmac:one", "hmac:other")
    )
    assert len({*plain, *one, *other}) == 9
    assert one == row_rules.mask(values, "hmac:one", secret).to_pylist()
    assert row_rules.key_of("hmac:one", secret).hex() not in plain
    extracted = hmac.new(b"kuvasz.mask", secret, hashlib.sha256).digest()
    assert row_rules.key_of("hmac:one", secret) == hmac.new(extracted, b"one\x01", hashlib.sha256).digest()


def test_a_value_that_made_its_row_too_large_no_expression_does_without() -> None:
    changes = split(insert("1", "a"))
    changes.new.length[1, 0] = CUT
    for read in (row_rules.inputs_of, row_rules.without_unreadable):
        with pytest.raises(DecodeError, match="column body: value '…' makes its row larger than") as caught:
            read(PLAN, changes.new)
        assert "the column is used in an expression: raise `pipeline.max_row_bytes`" in str(caught.value.hint)
