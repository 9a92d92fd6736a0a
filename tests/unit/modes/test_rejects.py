from __future__ import annotations

import dataclasses
import datetime
import decimal
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kuvasz.decode.tuples import split_changes
from kuvasz.errors import DecodeError
from kuvasz.model import LakeType, TableType, ValueType, Wire
from kuvasz.modes import dispatch, rejects, system_columns
from kuvasz.modes.clone import ChunkOutcome
from kuvasz.modes.owners import Owner
from kuvasz.modes.row_rules import Computed, Evaluated, Input, RefusedInput, Transform, judged
from kuvasz.modes.shape import COMPUTED, Shape
from kuvasz.modes.transaction_facts import Facts
from kuvasz.route.row_limit import RowLimit
from tests.support.changes import SAME, TABLE, Sender, delete, insert, update
from tests.support.shapes import APPEND, CHANGELOG, CLONE, HISTORY, KEYLESS, keys, pairs, rows, shape
from tests.support.wires import copy_line, joined, message

#: No int, and no bigint.
BAD, BAD_KEY = "99999999999", "9" * 30


def rejecting(made: Shape) -> Shape:
    return dataclasses.replace(made, rejects=True)


def apply(*messages: bytes, to: Shape = CLONE) -> ChunkOutcome:
    data, lengths = joined(list(messages))
    facts = Facts.of(np.array([[100, 1_000_000, 7, len(messages), 0]], np.int64))
    return dispatch.apply_changes(rejecting(to), np.frombuffer(data, np.uint8), lengths, facts)


def notes(applied: Any) -> list[dict]:
    return [] if applied.rejected is None else applied.rejected.to_pylist()


def why(applied: Any) -> list[tuple]:
    return [(note["operation"], note["ordinal"], note["column_name"], note["raw"]) for note in notes(applied)]


def left(applied: ChunkOutcome) -> dict[tuple[int, int], int]:
    """Key -> row, -1 where it is deleted."""
    return dict(zip(pairs(applied.keys), applied.written.tolist(), strict=True))


def test_a_row_that_does_not_fit_stays_out_and_takes_its_earlier_version_with_it() -> None:
    applied = apply(insert(1, 1, "a"), update(2, BAD, "b"), insert(3, 3, "c"))
    assert [row[1:] for row in rows(applied.rows)] == [(1, 1, "a"), (3, 3, "c")]
    assert left(applied) == dict(zip(keys(1, 2, 3), [0, -1, 1], strict=True))
    (note,) = notes(applied)
    assert json.loads(note.pop("raw_row")) == {"id": "2", "n": BAD, "body": "b"}
    assert note.pop("committed_at").isoformat() == "2000-01-01T00:00:01+00:00"
    assert note == {
        "source": "eu", "table_name": "public.items", "operation": "U", "lsn": 100, "ordinal": 1, "xid": 7,
        "key": '{"id": "2"}', "column_name": "n", "reason": "is too large for its type in the lake", "raw": BAD,
    }  # fmt: skip


def test_without_the_option_it_is_refused() -> None:
    data, lengths = joined([insert(1, BAD)])
    with pytest.raises(DecodeError, match="column n"):
        dispatch.apply_changes(CLONE, np.frombuffer(data, np.uint8), lengths)


def test_what_fits_costs_no_look() -> None:
    assert apply(insert(1), update(1, 2)).rejected is None


def test_what_it_left_out_is_taken_from_the_row_that_did_not_fit() -> None:
    applied = apply(insert(1, BAD, "big"), update(1, 1, SAME), insert(2, BAD))
    assert [row[1:] for row in rows(applied.rows)] == [(1, 1, "big")]
    assert why(applied) == [("I", 2, "n", BAD)], "what was replaced is nobody's newest version"


def test_what_was_replaced_takes_no_row_with_it_whatever_else_does_not_fit() -> None:
    applied = apply(update(1, BAD, SAME), update(1, 1, SAME), update(1, 2, SAME), update(2, 2, SAME), insert(3, BAD))
    assert why(applied) == [("I", 4, "n", BAD)]
    assert applied.aside is not None
    assert (applied.aside.rows.column("n").to_pylist(), pairs(applied.aside.sources)) == ([2, 2], keys(1, 2))


def test_what_it_left_out_goes_with_it_where_only_a_rejected_row_has_it() -> None:
    from_bad = message("U", [b"2", b"1", SAME], [BAD_KEY.encode(), None, None], "K")
    applied = apply(delete(2), from_bad, update(2, 1, SAME), update(2, 2, SAME), update(3, 2, SAME))
    assert [one[:3] for one in why(applied)] == [("U", 1, "id"), ("U", 3, None)]
    assert left(applied) == dict(zip(keys(2, 3), [-1, 0], strict=True))
    assert applied.aside is not None
    assert pairs(applied.aside.sources) == keys(3)


def test_where_all_changes_show_what_leaves_out_a_rejected_value_goes_with_it() -> None:
    applied = apply(insert(1, 1, "x"), update(1, BAD, "y"), insert(2, 2), to=HISTORY)
    assert [one[:3] for one in why(applied)] == [("U", 1, "n")]
    applied = apply(update(1, BAD, SAME), update(1, 1, SAME), to=HISTORY)
    assert [one[:3] for one in why(applied)] == [("U", 0, "n"), ("U", 1, None)]


def test_a_row_whose_key_cannot_be_read_is_left_out_as_a_whole() -> None:
    applied = apply(insert(BAD_KEY), insert(1), delete(BAD_KEY))  # type: ignore[arg-type]
    assert left(applied) == dict(zip(keys(1), [0], strict=True))
    assert [(one[0], one[1]) for one in why(applied)] == [("I", 0), ("D", 2)]
    assert json.loads(notes(applied)[1]["raw_row"]) == {"id": BAD_KEY}, "nothing else of it was sent"


def test_a_row_that_moves_to_such_a_key_leaves_its_old_one() -> None:
    applied = apply(message("U", [BAD_KEY.encode(), b"1", b"x"], [b"1", None, None], "K"))
    assert left(applied) == dict(zip(keys(1), [-1], strict=True))
    assert why(applied) == [("U", 0, "id", BAD_KEY)]


def test_a_row_that_comes_from_such_a_key_is_new() -> None:
    applied = apply(
        message("U", [b"1", b"1", b"x"], [BAD_KEY.encode(), None, None], "K"),
        message("U", [b"2", b"1", SAME], [BAD_KEY.encode(), None, None], "K"),
    )
    assert [row[1:] for row in rows(applied.rows)] == [(1, 1, "x")]
    assert why(applied) == [("U", 1, "id", "2")]


def test_an_append_table_knows_no_newest_version_of_a_rejected_row() -> None:
    applied = apply(insert(1, 1), update(1, BAD), insert(2), to=APPEND)
    assert [row[1] for row in rows(applied.rows)] == [1, 2]
    assert left(applied) == dict(zip(keys(1, 2), [-1, 1], strict=True))


def test_a_changelog_shows_no_rejected_event_and_keeps_the_numbers_of_others() -> None:
    applied = apply(insert(1, 1), insert(BAD_KEY), update(1, BAD), insert(2), to=CHANGELOG)  # type: ignore[arg-type]
    found = applied.rows.select(["id", system_columns.OP, system_columns.ORDINAL])
    assert rows(found) == [(1, "I", 0), (2, "I", 3)]
    assert [(one[0], one[1]) for one in why(applied)] == [("I", 1), ("U", 2)]


def test_a_changelog_tells_of_a_row_that_leaves_the_filter_by_its_key_alone() -> None:
    number = ValueType(kind=LakeType.INT, wire=Wire.INTEGER)
    transform = Transform(
        place="source eu", inputs=(Input(name="n", column=1, type=number),), filter="n = 1", filter_inputs=(0,),
        computed=(), identity=(0,),
    )  # fmt: skip
    data, lengths = joined([update(1, BAD, "b"), update(2, 5, "c"), insert(3, 1, "d")])
    facts = Facts.of(np.array([[100, 1_000_000, 7, 3, 0]], np.int64))
    made = dataclasses.replace(rejecting(CHANGELOG), transform=transform)
    evaluated = Evaluated(keep=np.array([False, False, True]), computed=())
    applied = dispatch.apply_changes(made, np.frombuffer(data, np.uint8), lengths, facts, evaluated)
    found = applied.rows.select(["id", "n", "body", system_columns.OP])
    assert rows(found) == [(1, None, None, "D"), (2, None, None, "D"), (3, 1, "d", "I")]
    assert notes(applied) == []


NUMBER = ValueType(kind=LakeType.INT, wire=Wire.INTEGER)


def computing(made: Shape, *, has_filter: bool = True) -> Shape:
    """Return a shape whose n is what an expression makes of the source's n."""
    transform = Transform(
        place="source eu", inputs=(Input(name="n", column=1, type=NUMBER),), filter="n < 5" if has_filter else None,
        filter_inputs=(0,) if has_filter else (), identity=(0,),
        computed=(Computed(name="n", text="100 / n", inputs=(0,), type=NUMBER),),
    )  # fmt: skip
    bindings = tuple(
        dataclasses.replace(binding, column=COMPUTED) if binding.name == "n" else binding for binding in made.bindings
    )
    return dataclasses.replace(rejecting(made), transform=transform, bindings=bindings)


def of_answers(made: Shape, *answers: tuple[object, object], **unreadable: int) -> Evaluated:
    assert made.transform is not None
    columns = [
        pa.array([None if row[place] is ... else {"v": row[place]} for row in answers], pa.struct([("v", kind)]))
        for place, kind in enumerate((pa.bool_(), pa.int32()))
    ]
    bad = [RefusedInput(row=row, input=0, reason=reason) for reason, row in unreadable.items()]
    return judged(made.transform, columns, bad)


def answered(made: Shape, messages: list[bytes], *answers: tuple[object, object], **unreadable: int) -> ChunkOutcome:
    """Apply messages with Spark's answers for new rows and then old ones: `...` where an expression failed."""
    data, lengths = joined(messages)
    facts = Facts.of(np.array([[100, 1_000_000, 7, len(messages), 0]], np.int64))
    evaluated = of_answers(made, *answers, **unreadable)
    return dispatch.apply_changes(made, np.frombuffer(data, np.uint8), lengths, facts, evaluated)


@pytest.mark.parametrize("made", [CLONE, HISTORY, APPEND, CHANGELOG])
def test_a_row_for_which_an_expression_fails_stays_out(made: Shape) -> None:
    messages = [insert(1, 1), update(2, 0), update(3, 9), update(4, 2), update(5, 0), insert(6, 0)]
    answers = [(True, 100), (True, ...), (..., ...), (False, None), (False, ...), (False, ...)]
    applied = answered(computing(made), messages, *answers, odd=3)
    found = [row["id"] for row in applied.rows.to_pylist() if row.get(system_columns.OP) != "D"]
    assert found == [1]
    assert [(note["column_name"], note["reason"], note["key"]) for note in notes(applied)] == [
        ("n", "its expression fails", '{"id": "2"}'), (None, "the filter fails for it", '{"id": "3"}'),
        ("n", "odd", '{"id": "4"}'),
    ]  # fmt: skip
    if made is CLONE:
        assert left(applied) == dict(zip(keys(1, 2, 3, 4, 5, 6), [0, -1, -1, -1, -1, -1], strict=True))


def test_an_expression_that_fails_for_what_was_replaced_matters_to_no_clone() -> None:
    made = computing(CLONE, has_filter=False)
    applied = answered(made, [insert(1, 0), update(1, 4)], (True, ...), (True, 25))
    assert ([row["n"] for row in applied.rows.to_pylist()], notes(applied)) == ([25], [])


def test_a_row_without_a_key_for_which_an_expression_fails_goes_as_a_whole() -> None:
    bag = computing(shape(KEYLESS, TableType.CLONE))
    good, bad = [b"1", b"1", b"x"], [b"2", b"0", b"x"]
    messages = [message("I", bad), message("U", good, bad, "O"), message("U", bad, good, "O")]
    applied = answered(bag, messages, (True, ...), (True, 100), (True, ...), (True, ...), (True, 100))
    assert applied.delta is not None
    assert (applied.rows.num_rows, applied.delta.tolist()) == (0, [])
    assert [one[:3] for one in why(applied)] == [("I", 0, "n"), ("U", 2, "n")]
    applied = answered(bag, messages, (..., ...), (True, 100), (..., ...), (..., ...), (True, 100))
    assert applied.delta is not None
    assert (applied.rows.num_rows, applied.delta.tolist()) == (0, [])
    assert [one[:3] for one in why(applied)] == [("I", 0, None), ("U", 2, None)]


def test_a_key_that_an_expression_does_not_give_is_none() -> None:
    made = computing(dataclasses.replace(CLONE, key=(*CLONE.key, 2)))
    assert made.bindings[2].name == "n"
    applied = answered(made, [insert(1, 1), update(2, 0)], (True, 100), (True, ...))
    assert [row["id"] for row in applied.rows.to_pylist()] == [1]
    assert [(note["operation"], note["reason"]) for note in notes(applied)] == [("U", "its expression fails")]


def test_a_copied_row_for_which_an_expression_fails_stays_out() -> None:
    made = computing(CLONE)
    data = b"".join(copy_line([str(number).encode(), b"1", b"x"]) for number in range(4))
    evaluated = of_answers(made, (True, 5), (True, ...), (..., 5), (False, ...))
    copied = dispatch.read_copy(made, data, evaluated, 7)
    assert [row["id"] for row in copied.rows.to_pylist()] == [0]
    assert [(note["key"], note["lsn"]) for note in notes(copied)] == [('{"id": "1"}', 7), ('{"id": "2"}', 7)]


def test_a_history_ends_the_version_before_it() -> None:
    applied = apply(update(1, BAD), to=HISTORY)
    assert applied.closings is not None
    assert (applied.rows.num_rows, applied.closings.is_gone.tolist()) == (0, [True])


def test_a_row_without_a_key_goes_as_a_whole() -> None:
    bag = shape(KEYLESS, TableType.CLONE)
    whole = [b"1", b"1", b"x"]
    bad = [b"2", BAD.encode(), b"x"]
    applied = apply(
        message("I", whole), message("I", bad), message("U", whole, bad, "O"), message("U", bad, whole, "O"),
        message("D", None, bad, "O"), message("I", whole), to=bag,
    )  # fmt: skip
    assert applied.delta is not None
    assert (applied.rows.num_rows, applied.delta.tolist()) == (2, [2])
    assert [one[0] for one in why(applied)] == ["I", "U", "D"]


def test_of_several_sources_each_is_told_by_its_name() -> None:
    owners = (Owner(source="eu", table=TABLE, sid="eu", end=1), Owner(source="us", table=TABLE, sid="us", end=3))
    applied = apply(insert(1), insert(1, BAD), insert(2), to=dataclasses.replace(CLONE, owners=owners))
    assert [row[:2] for row in rows(applied.rows)] == [("eu", 1), ("us", 2)]
    assert [note["source"] for note in notes(applied)] == ["us"]


def test_masked_values_are_masked_and_those_left_out_are_absent() -> None:
    bindings = [dataclasses.replace(one, mask={"body": "hmac", "id": None}.get(one.name)) for one in CLONE.bindings]
    masked = dataclasses.replace(CLONE, bindings=tuple(bindings), mask_secret=b"s")
    (note,) = notes(apply(insert(1, BAD, "secret"), to=masked))
    assert len(json.loads(note["raw_row"])["body"]) == 64
    hidden = [dataclasses.replace(one, mask="redact" if one.name == "n" else None) for one in bindings]
    (note,) = notes(apply(insert(1, BAD), to=dataclasses.replace(CLONE, bindings=tuple(hidden))))
    assert note["raw"] == "***"
    without = [dataclasses.replace(one, column=-1) if one.name == "body" else one for one in CLONE.bindings]
    (note,) = notes(apply(insert(1, BAD, "secret"), to=dataclasses.replace(CLONE, bindings=tuple(without))))
    assert json.loads(note["raw_row"]) == {"id": "1", "n": BAD}


def test_long_values_are_cut() -> None:
    (note,) = notes(apply(insert(1, BAD, "x" * 100_000)))
    assert len(json.loads(note["raw_row"])["body"]) == 64 * 1024 + 1


def test_copied_rows_that_do_not_fit_have_a_number_of_their_own() -> None:
    lines = [copy_line([b"1", b"1", b"x"]), copy_line([b"2", BAD.encode(), b"y"]), copy_line([b"x", b"1", b"z"])]
    copied = dispatch.apply_copy(rejecting(CLONE), b"".join(lines), 7)
    assert [row[1:] for row in rows(copied.rows)] == [(1, 1, "x")]
    assert pairs(copied.keys) == keys(1)
    found = notes(copied)
    assert [(one["operation"], one["lsn"], one["column_name"]) for one in found] == [("R", 7, "n"), ("R", 7, "id")]
    again = notes(dispatch.apply_copy(rejecting(CLONE), b"".join(reversed(lines)), 7))
    assert sorted(one["ordinal"] for one in again) == sorted(one["ordinal"] for one in found)
    assert all(one["ordinal"] < 0 for one in found)


def test_rows_of_which_none_fits_leave_nothing() -> None:
    applied = apply(*(insert(number, BAD) for number in range(100)))
    assert (applied.rows.num_rows, len(notes(applied))) == (0, 100)


values = st.sampled_from([1, 2, BAD])
bodies = st.sampled_from(["a", "b"])
ids = st.sampled_from([1, 2, 3, BAD_KEY])


@given(st.lists(st.tuples(st.sampled_from("IUMD"), ids, ids, values, bodies, st.booleans()), max_size=25))
@example([("I", BAD_KEY, 1, 1, "a", False), ("M", BAD_KEY, 1, 1, "a", True), ("U", 1, 1, 2, "a", True)])
def test_what_is_left_is_what_the_source_has_less_what_does_not_fit(steps: list[tuple]) -> None:
    source: dict[Any, tuple] = {}
    torn: set[Any] = set()  # rows that came from a key which nobody can read, and left something out
    messages = []
    for kind, key, other, n, body, is_same in steps:
        if kind == "I" and key not in source:
            source[key] = (n, body)
            torn.discard(key)
            messages.append(insert(key, n, body))
        elif kind == "D" and key in source:
            del source[key]
            messages.append(delete(key))
        elif kind == "U" and key in source:
            source[key] = (n, source[key][1] if is_same else body)
            if not is_same:
                torn.discard(key)
            messages.append(update(key, n, SAME if is_same else body))
        elif kind == "M" and key in source and other not in source and key != other:
            before = source.pop(key)
            source[other] = (n, before[1] if is_same else body)
            is_torn = is_same and (key in torn or key == BAD_KEY)
            torn.discard(key)
            (torn.add if is_torn else torn.discard)(other)
            messages.append(update(other, n, SAME if is_same else body, old=key))
    applied = apply(*messages)
    wanted = {(key, *row) for key, row in source.items() if key != BAD_KEY and row[0] != BAD and key not in torn}
    assert {row[1:] for row in rows(applied.rows)} == wanted
    waiting = set() if applied.aside is None else {row[1] for row in rows(applied.aside.rows)}
    assert waiting <= torn, "what is left out of others was in a message before"
    noted = {int(json.loads(note["key"])["id"]) for note in notes(applied) if note["column_name"] == "n"}
    assert noted - torn == {key for key, row in source.items() if key != BAD_KEY and row[0] == BAD} - torn


def keeping(made: Shape = CLONE) -> Shape:
    return dataclasses.replace(rejecting(made), keeps_earlier=True)


def test_an_earlier_version_stays_where_it_is_kept() -> None:
    applied = apply(insert(1, BAD), update(2, 1), update(2, 2), update(2, BAD), update(3, BAD), to=keeping())
    assert [row[1:3] for row in rows(applied.rows)] == [(2, 2)], "the last one that fits"
    assert left(applied) == dict(zip(keys(2), [0], strict=True)), "nothing is said of 1 and 3"
    assert [row[0:2] for row in why(applied)] == [("I", 0), ("U", 3), ("U", 4)]


def test_what_is_kept_is_not_what_another_row_leaves_out() -> None:
    assert apply(update(1, BAD, "big"), update(1, 1, SAME), to=keeping()).rows.column("body").to_pylist() == ["big"]
    with pytest.raises(DecodeError, match="a row before it may have been rejected") as refused:
        apply(update(1, 1, SAME), update(2, 2), to=keeping())
    assert refused.value.hint is not None
    assert "copy it again" in refused.value.hint
    past = dataclasses.replace(
        CLONE, bindings=tuple(dataclasses.replace(one, is_past=True) for one in CLONE.bindings)
    )
    with pytest.raises(DecodeError, match="a row before it may have been rejected"):
        apply(update(1, 1, SAME), to=past)
    assert apply(update(1, 1, SAME)).aside is not None, "no other table is asked that"


@given(st.lists(st.tuples(st.sampled_from("IUMD"), ids, ids, values, bodies, st.booleans()), max_size=25))
def test_what_is_kept_is_the_newest_version_of_each_key_that_fits(steps: list[tuple]) -> None:
    source: dict[Any, tuple] = {1: (0, "z"), 2: (BAD, "y")}
    lake: dict[Any, tuple] = {1: (0, "z"), 2: (0, "y")}
    held, sent, messages = dict(lake), set[Any](), list[bytes]()

    def write(key: Any, row: tuple) -> None:
        source[key] = row
        sent.add(key)
        if key != BAD_KEY and row[0] != BAD:
            lake[key] = row

    for kind, key, other, n, body, is_same in steps:
        leaves_out = is_same and key in sent and key != BAD_KEY
        text = SAME if leaves_out else body
        row = (n, source[key][1] if leaves_out else body)
        if kind == "I" and key not in source:
            write(key, (n, body))
            messages.append(insert(key, n, body))
        elif kind == "U" and key in source:
            write(key, row)
            messages.append(update(key, n, text))
        elif kind in "MD" and key in source and key != other and (kind == "D" or other not in source):
            del source[key]
            lake.pop(key, None)
            sent.discard(key)
            if kind == "M":
                write(other, row)
            messages.append(delete(key) if kind == "D" else update(other, n, text, old=key))
    applied = apply(*messages, to=keeping())
    named = {pair: number for number in (1, 2, 3) for pair in keys(number)}
    written = rows(applied.rows)
    for pair, row_at in left(applied).items():
        held.pop(named[pair], None)
        if row_at >= 0:
            held[named[pair]] = written[row_at][2:]
    assert held == lake


def test_keys_of_copied_rows_that_do_not_fit_are_told_where_earlier_ones_may_be_there() -> None:
    lines = [
        copy_line([b"1", b"1", b"x"]),
        copy_line([b"2", BAD.encode(), b"y"]),
        copy_line([b"x", BAD.encode(), b"z"]),
    ]
    copied = dispatch.apply_copy(keeping(), b"".join(lines), 7)
    assert copied.stale is not None
    assert pairs(copied.stale) == keys(2), "nobody can have the third one"
    assert dispatch.apply_copy(rejecting(CLONE), b"".join(lines), 7).stale is None


def test_a_message_that_is_none_is_refused_all_the_same() -> None:
    with pytest.raises(DecodeError, match="ends in the middle"):
        apply(insert(1)[:-1])


def test_what_fits_is_sifted_to_itself() -> None:
    data, lengths = joined([insert(1), update(2), delete(3)])
    changes = split_changes(data, lengths, 3)
    sifted = rejects.sift(CLONE, changes, None)
    assert (sifted.changes.tag.tolist(), sifted.rejected.num_rows) == (changes.tag.tolist(), 0)


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (True, pa.bool_(), "t"),
        (False, pa.bool_(), "f"),
        (-7, pa.int64(), "-7"),
        ("a", pa.string(), "a"),
        (b"\x01\xff", pa.binary(), "\\x01ff"),
        (bytes(range(16)), pa.binary(16), "00010203-0405-0607-0809-0a0b0c0d0e0f"),
        (1.0, pa.float64(), "1"),
        (0.1, pa.float64(), "0.1"),
        (decimal.Decimal("1.50"), pa.decimal128(10, 2), "1.50"),
        (datetime.date(2026, 3, 1), pa.date32(), "2026-03-01"),
        (datetime.time(1, 2, 3), pa.time64("us"), "01:02:03"),
        (datetime.datetime(2026, 3, 1, 1, 2, 3), pa.timestamp("us"), "2026-03-01 01:02:03"),  # noqa: DTZ001 (it has none)
        (datetime.datetime(2026, 3, 1, 1, 2, 3, 50_000, datetime.UTC), pa.timestamp("us", "UTC"),
         "2026-03-01 01:02:03.05+00"),
    ],
)  # fmt: skip
def test_a_value_of_the_lake_is_written_as_its_source_writes_it(value: object, kind: pa.DataType, text: str) -> None:
    assert rejects.text_of(pa.scalar(value, kind).as_py(), kind) == text


BIG = "x" * 20_000


def too_large(*messages: bytes, to: Shape = CLONE) -> ChunkOutcome:
    """Apply messages of which those of more than 1,000 bytes are too large."""
    segment = Sender().segment([(100, list(messages))])
    cut = RowLimit(1000, lambda *_: True).check(segment)
    facts = Facts.of(np.array([[100, 1_000_000, 7, len(messages), 0]], np.int64))
    return dispatch.apply_changes(rejecting(to), np.frombuffer(cut.data, np.uint8), cut.lengths, facts)


LARGE = "makes its row larger than `pipeline.max_row_bytes`"


@pytest.mark.parametrize("to", [CLONE, HISTORY, APPEND, CHANGELOG])
def test_a_row_that_is_too_large_stays_out(to: Shape) -> None:
    applied = too_large(insert(1), update(2, 1, BIG), insert(3), to=to)
    assert [row["id"] for row in applied.rows.to_pylist()] == [1, 3]
    (note,) = notes(applied)
    assert (note["column_name"], note["reason"], note["raw"]) == ("body", LARGE, None)
    assert (json.loads(note["key"]), json.loads(note["raw_row"])) == ({"id": "2"}, {"id": "2", "n": "1"})


def test_what_leaves_out_a_value_that_was_too_large_goes_with_its_row() -> None:
    applied = too_large(insert(1, 1, BIG), update(1, 2, SAME), insert(2, 1, BIG), update(2, 3, "small"))
    assert [row[1:] for row in rows(applied.rows)] == [(2, 3, "small")]
    assert [(one[:3]) for one in why(applied)] == [("U", 1, "body")]


def test_an_old_row_that_is_too_large_matters_only_where_it_is_shown() -> None:
    messages = [
        message("U", [b"1", b"2", b"y"], [b"1", b"1", BIG.encode()], "O"),
        message("D", None, [b"2", b"1", BIG.encode()], "O"),
    ]
    applied = too_large(*messages)
    assert ([row[1:] for row in rows(applied.rows)], applied.rejected) == ([(1, 2, "y")], None)
    assert left(applied) == dict(zip(keys(1, 2), [0, -1], strict=True))
    applied = too_large(*messages, to=CHANGELOG)
    assert [row["id"] for row in applied.rows.to_pylist()] == [1]
    assert [(note["operation"], note["reason"]) for note in notes(applied)] == [("D", LARGE)]


def test_what_tells_rows_apart_is_never_without_a_value_that_was_too_large() -> None:
    """The lake may have the row, from a copy, and nothing says which it is."""
    big = [b"1", b"1", BIG.encode()]
    for one in (message("I", big), message("D", None, big, "O"), message("U", [b"1", b"1", b"x"], big, "O")):
        with pytest.raises(DecodeError, match="value '…' makes its row larger") as caught:
            too_large(one, to=shape(KEYLESS, TableType.CLONE))
        assert "raise `pipeline.max_row_bytes`" in str(caught.value.hint)
        assert "kuvasz resync" in str(caught.value.hint)
    keyless = shape(KEYLESS, TableType.CHANGELOG)
    with pytest.raises(DecodeError, match="value '…' makes its row larger"):
        too_large(message("U", [b"1", b"1", b"x"], big, "O"), to=keyless)
