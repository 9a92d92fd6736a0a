from __future__ import annotations

import collections
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kuvasz import errors
from kuvasz.decode import messages
from kuvasz.model import Applied, Delivery, PgType, Relation, Segment, Truncation
from kuvasz.route import assembler as assembler_module
from kuvasz.route import scan
from kuvasz.route.assembler import Assembler
from kuvasz.route.row_limit import RowLimit
from tests.support import pgoutput
from tests.support.examples import examples
from tests.support.pgoutput import begin, commit, keepalive, origin, relation, row, truncate, type_name


class Routed:
    """oid 1 to worker 0, oids 2 and 3 to worker 1, above: nowhere."""

    def __init__(self) -> None:
        self.workers = {1: 0, 2: 1, 3: 1}
        self.asked: list[int] = []

    def worker(self, source: str, relation: Relation) -> int | None:
        self.asked.append(relation.oid)
        return self.workers.get(relation.oid)


def types(oids: list[int]) -> dict[int, PgType]:
    return {oid: PgType(oid=oid, name="text") for oid in oids if oid == 25}


def assembler(spill_bytes: int = 1 << 20, routes: Routed | None = None) -> Assembler:
    return Assembler("eu", routes or Routed(), types, spill_bytes)


def feed(target: Assembler, *messages: bytes) -> dict[int, Delivery]:
    fed = target.feed(*pgoutput.gulp(list(messages)))
    assert len({worker for worker, _ in fed}) == len(fed)
    return dict(fed)


def test_one_transaction_is_one_delivery():
    target = assembler()
    out = feed(target, begin(100, xid=7, us=55), relation(1), row(1, "a"), row(1, "b", b"U"), commit(100, 148))
    (segment,) = out[0].changes
    assert list(out) == [0]
    assert pgoutput.texts(segment) == ["a", "b"]
    assert {row[1:] for row in pgoutput.rows_of(segment)} == {(100, 148, 55, 7)}
    assert (out[0].through, out[0].is_open, target.received_lsn, target.commit_us) == (148, False, 148, 55)
    assert (target.rows, target.transactions, target.in_transaction) == (2, 1, False)
    assert segment.relation.table.name == "t"
    assert segment.relation.columns[0].pg_type.name == "text"


def test_a_time_of_another_server_is_not_taken_for_one_of_the_source():
    target = assembler()
    feed(target, begin(100, us=5), relation(1), row(1, "a"), commit(100))
    feed(target, begin(200, us=99), origin(7), row(1, "b"), commit(200))
    assert (target.transactions, target.commit_us) == (2, 5)
    feed(target, begin(300, us=98))
    feed(target, origin(8))
    feed(target, row(1, "c"))
    feed(target, commit(300), begin(400, us=97), origin(9))
    assert (target.transactions, target.commit_us) == (3, 5)
    feed(target, commit(400), begin(500, us=6), row(1, "d"), commit(500))
    assert (target.transactions, target.commit_us) == (5, 6)


@pytest.mark.parametrize(("us", "counts"), [
    (2**63 - 1, messages.LAST_COMMIT_US), (-(2**63), messages.FIRST_COMMIT_US), (5, 5),
    (messages.LAST_COMMIT_US + 1, messages.LAST_COMMIT_US), (messages.FIRST_COMMIT_US, messages.FIRST_COMMIT_US),
])  # fmt: skip
def test_a_commit_time_beyond_all_calendars_counts_as_their_first_or_last(us: int, counts: int):
    """Whoever owns a source may say any, and a table that others share has them in a column."""
    target = assembler()
    target.expect([Applied(100, 7, counts)])
    out = feed(target, begin(100, xid=7, us=us), relation(1), row(1, "a"), commit(100))
    (segment,) = out[0].changes
    assert segment.transactions.commit_us.tolist() == [counts] == [target.commit_us]
    assert target.unproven_lsn is None


BEYOND = messages.LAST_LSN + 1


@pytest.mark.parametrize("told", [
    (keepalive(BEYOND),), (keepalive(5), keepalive(2**64 - 1, reply=True)), (begin(BEYOND),), (begin(2**64 - 1),),
    (begin(messages.LAST_LSN),), (begin(100), commit(100, BEYOND)),
])  # fmt: skip
def test_an_lsn_that_the_lake_cannot_count_is_refused(told: tuple[bytes, ...]):
    """It would end the worker that all sources share: NumPy and Iceberg have signed numbers."""
    target = assembler()
    heard = scan.keepalives(*pgoutput.gulp(list(told)))
    assert not heard or not target.hear(heard)
    assert not target.take_reply_wanted()
    with pytest.raises(errors.DecodeError, match="beyond all that the lake can count"):
        feed(target, *told)
    assert target.received_lsn < BEYOND


def test_many_small_transactions_share_a_segment_and_keep_their_bounds():
    target = assembler()
    feed(target, begin(1), relation(1), relation(2), commit(1))
    stream = [
        message
        for lsn in range(10, 1010, 10)
        for message in (begin(lsn, xid=lsn), row(1, f"a{lsn}"), row(2, f"b{lsn}"), commit(lsn))
    ]
    out = feed(target, *stream)
    for worker, letter in ((0, "a"), (1, "b")):
        (segment,) = out[worker].changes
        assert [(row[1], row[4]) for row in pgoutput.rows_of(segment)] == [(lsn, lsn) for lsn in range(10, 1010, 10)]
        assert pgoutput.texts(segment) == [f"{letter}{lsn}" for lsn in range(10, 1010, 10)]


def test_an_open_transaction_waits_for_its_commit():
    target = assembler()
    assert feed(target, begin(10), relation(1), row(1, "a")) == {}
    assert target.in_transaction
    assert target.waiting_bytes > 0
    assert feed(target, row(1, "b")) == {}
    out = feed(target, commit(10), begin(20), row(1, "c"))
    assert pgoutput.texts(out[0].changes[0]) == ["a", "b"]
    assert out[0].through == 18
    assert pgoutput.texts(feed(target, commit(20))[0].changes[0]) == ["c"]
    assert target.waiting_bytes == 0


def test_keepalives_move_the_received_lsn_but_not_within_a_transaction():
    target = assembler()
    feed(target, keepalive(500, reply=True))
    assert target.received_lsn == 500
    assert target.take_reply_wanted()
    assert not target.take_reply_wanted()
    feed(target, begin(600), keepalive(650))
    assert target.received_lsn == 500
    feed(target, commit(600))
    assert target.received_lsn == 608


def test_keepalives_that_are_heard_count_as_if_they_were_fed():
    heard, fed = assembler(), assembler()
    feed(heard, begin(100), relation(1), row(1, "a"), commit(100, 148))
    feed(fed, begin(100), relation(1), row(1, "a"), commit(100, 148))
    for gulp in ([keepalive(120)], [keepalive(500, reply=True), keepalive(400)], [keepalive(600)]):
        assert heard.hear(b"".join(gulp))
        assert feed(fed, *gulp) == {}
        assert heard.received_lsn == fed.received_lsn
        assert heard.take_reply_wanted() == fed.take_reply_wanted()


def test_keepalives_are_fed_while_a_transaction_is_open_or_has_yet_to_come():
    target = assembler()
    target.expect([Applied(300)])
    assert not target.hear(keepalive(400))
    target.reset(2)
    feed(target, begin(100))
    assert not target.hear(keepalive(400, reply=True))
    assert (target.received_lsn, target.take_reply_wanted()) == (0, False)


def test_a_large_transaction_goes_out_in_open_parts_and_its_end_reaches_all_of_them():
    target = assembler(spill_bytes=30)
    feed(target, begin(5), relation(1), relation(2), row(2, "x"), commit(5))
    first = feed(target, begin(10, xid=3), row(1, "a" * 40), row(2, "b"))
    assert {worker: delivery.is_open for worker, delivery in first.items()} == {0: True, 1: True}
    assert {delivery.through for delivery in first.values()} == {13}
    assert pgoutput.rows_of(first[0].changes[0])[0][1:] == (10, 11, 0, 3)
    second = feed(target, row(1, "c" * 40))
    assert list(second) == [0]
    assert second[0].is_open
    last = feed(target, commit(10, 99), begin(200), row(2, "z"), commit(200))
    assert {worker: delivery.is_open for worker, delivery in last.items()} == {0: False, 1: False}
    assert last[0].changes == ()
    assert pgoutput.texts(last[1].changes[0]) == ["z"]
    assert last[0].through == 208


def test_whole_transactions_and_an_open_part_share_a_delivery():
    target = assembler(spill_bytes=30)
    out = feed(target, begin(10), relation(1), row(1, "a"), commit(10), begin(20), row(1, "b" * 40))
    assert [row[1:3] for change in out[0].changes for row in pgoutput.rows_of(change)] == [(10, 18), (20, 21)]
    assert (out[0].is_open, out[0].through) == (True, 18)


def test_what_goes_out_is_looked_at_before_it_does():
    told: list[tuple[int, int, int]] = []
    limit = RowLimit(50, lambda relation, *facts: bool(told.append((relation.oid, *facts))))  # type: ignore[func-returns-value]
    target = Assembler("eu", Routed(), types, 30, row_limit=limit)
    feed(target, begin(10), relation(1), relation(9), row(1, "a"), row(9, "x" * 60), commit(10))
    assert told == [], "nobody wants that relation"
    feed(target, begin(20), row(1, "a" * 60), row(1, "b"))
    assert [(oid, lsn) for oid, lsn, _ in told] == [(1, 20)], "its transaction has not ended"
    feed(target, row(1, "c" * 70), commit(20), begin(30), row(1, "d" * 80), commit(30))
    assert [(oid, lsn) for oid, lsn, _ in told[1:]] == [(1, 20), (1, 30)]


def test_relations_without_a_route_are_dropped_and_counted():
    target = assembler()
    assert feed(target, begin(10), relation(9), row(9, "a"), row(9, "b"), commit(10)) == {}
    assert (target.dropped_rows, target.rows, target.received_lsn) == (2, 0, 18)


def test_an_equal_relation_message_goes_on_and_another_shape_begins_a_new_segment():
    target = assembler()
    out = feed(
        target, begin(10), relation(1), row(1, "a"), relation(1), row(1, "b"), relation(1, columns=2), row(1, "c"),
        commit(10),
    )  # fmt: skip
    assert [pgoutput.texts(change) for change in out[0].changes] == [["a", "b"], ["c"]]
    assert [len(change.relation.columns) for change in out[0].changes] == [1, 2]
    again = feed(target, begin(20), row(1, "d"), commit(20))
    assert [len(change.relation.columns) for change in again[0].changes] == [2]


def test_routes_are_asked_at_every_relation_message():
    routes = Routed()
    target = assembler(routes=routes)
    feed(target, begin(10), relation(9), row(9, "a"), commit(10))
    routes.workers[9] = 5
    target.reset(2)
    out = feed(target, begin(10), relation(9), row(9, "a"), commit(10))
    assert out[5].epoch == 2
    assert routes.asked == [9, 9]
    del routes.workers[9]
    assert feed(target, begin(20), relation(9), row(9, "b"), commit(20)) == {}


def test_truncate_keeps_its_place_among_the_rows_of_its_worker():
    target = assembler()
    feed(target, begin(1), relation(1), relation(2), relation(3), commit(1))
    out = feed(
        target, begin(10), row(2, "a"), row(3, "b"), truncate(2), row(3, "c"), row(2, "d"), row(1, "e"),
        commit(10), begin(20), truncate(3, 2), row(2, "f"), commit(20),
    )  # fmt: skip
    told = [
        change.relation.oid if isinstance(change, Truncation) else (change.relation.oid, pgoutput.texts(change))
        for change in out[1].changes
    ]
    assert told == [(2, ["a"]), (3, ["b"]), 2, (3, ["c"]), (2, ["d"]), 3, 2, (2, ["f"])]
    assert [change.end_lsn for change in out[1].changes if isinstance(change, Truncation)] == [18, 28, 28]
    assert pgoutput.texts(out[0].changes[0]) == ["e"]
    assert pgoutput.texts(feed(target, begin(30), row(3, "g"), commit(30))[1].changes[0]) == ["g"]


def test_truncates_of_routed_relations_are_told():
    told = []
    target = Assembler(
        "eu", Routed(), types, 1 << 20, on_truncate=lambda relation, *at: told.append((relation.oid, *at))
    )
    feed(target, begin(10, xid=7), relation(1), relation(9), truncate(1, 9), row(1, "a"))
    feed(target, truncate(1), commit(10))
    assert told == [(1, 10, 7), (1, 10, 7)]


@pytest.mark.parametrize("cuts", [(), (2,), (3,), (1, 2, 3, 4)])
def test_a_relation_whose_row_comes_as_another_ones_is_told(cuts):
    told = []
    target = Assembler("eu", Routed(), types, 1 << 20, on_astray=lambda *of: told.append((of[0].oid, of[1])))
    messages = [begin(10), relation(9), relation(1), row(9, "a"), row(1, "b"), relation(2), row(2, "c"), commit(10)]
    for first, end in itertools.pairwise((0, *cuts, len(messages))):
        feed(target, *messages[first:end])
    assert told == [(1, 10)]


def test_relations_before_a_truncate_are_not_taken_for_each_others():
    told = []
    target = Assembler("eu", Routed(), types, 1 << 20, on_astray=lambda *of: told.append(of))
    feed(target, begin(10), relation(9), relation(1), relation(2), truncate(9, 1, 2), row(9, "a"), commit(10))
    feed(target, begin(20), relation(1))
    target.reset(2)
    feed(target, begin(30), relation(9), row(9, "b"), commit(30))
    assert told == []


def test_truncate_of_an_open_transaction_waits():
    target = assembler()
    assert feed(target, begin(10), relation(1), row(1, "a"), truncate(1)) == {}
    out = feed(target, row(1, "b"), commit(10))
    assert [type(change) for change in out[0].changes] == [Segment, Truncation, Segment]


def test_many_truncates_do_not_pile_up_lanes():
    target = assembler()
    feed(target, begin(1), relation(1), relation(2), commit(1))
    for lsn in range(10, 5000, 10):
        feed(target, begin(lsn), truncate(2), row(2, "a"), commit(lsn))
    assert len(target._lanes) == 2


def test_reset_drops_what_waits():
    target = assembler()
    feed(target, begin(10), relation(1), row(1, "a"), truncate(1), row(1, "b"))
    target.reset(4)
    assert (target.in_transaction, target.waiting_bytes, target.received_lsn) == (False, 0, 0)
    out = feed(target, begin(10), relation(1), row(1, "a"), commit(10))
    assert [pgoutput.texts(change) for change in out[0].changes] == [["a"]]
    assert out[0].epoch == 4


def test_an_unresolved_type_keeps_the_name_of_its_type_message():
    target = assembler()
    named = pgoutput.data(b"Y" + (77).to_bytes(4, "big") + b"app\0mood\0")
    out = feed(target, begin(10), named, relation(1, type_oid=77), row(1, "a"), commit(10))
    assert out[0].changes[0].relation.columns[0].pg_type == PgType(oid=77, name="mood", schema="app")


def test_a_gulp_may_be_reused():
    target = assembler()
    data, lengths = pgoutput.gulp([begin(10), relation(1), row(1, "a"), commit(10)])
    gulp = bytearray(data)
    ((_, delivery),) = target.feed(gulp, lengths)
    gulp[:] = bytes(len(gulp))
    assert pgoutput.texts(delivery.changes[0]) == ["a"]


def test_an_empty_gulp():
    assert assembler().feed(bytearray(), np.empty(0, np.uint32)) == []


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([row(1, "a")], "row outside of a transaction"),
        ([begin(1), row(1, "a")], "row of a relation that was not described"),
        ([begin(1), begin(2)], "Begin inside of a transaction"),
        ([commit(1)], "Commit outside of a transaction"),
        ([begin(1), commit(2)], "Commit of another transaction"),
        ([begin(1), truncate(1)], "relation 1, which was not described"),
        ([pgoutput.data(b"S")], "unexpected message tag"),
        ([pgoutput.data(b"")], "shorter than its kind needs"),
        ([b"x"], "neither XLogData nor keepalive"),
        ([b""], "neither XLogData nor keepalive"),
        ([b"k12"], "shorter than its kind needs"),
    ],
)
def test_what_the_protocol_forbids_is_a_decode_error(messages: list[bytes], text: str):
    with pytest.raises(errors.DecodeError, match=text):
        feed(assembler(), *messages)


def test_lengths_must_fit_the_gulp():
    with pytest.raises(errors.DecodeError, match="messages of 9 bytes in a gulp of 3"):
        assembler().feed(b"abc", np.array([9], np.uint32))


#: Relation (two of the five have no route), its columns, 0 to describe it again, 0 to truncate it, length, kind.
_steps = st.tuples(
    st.sampled_from([1, 2, 3, 8, 9]), st.sampled_from([1, 1, 1, 2]), st.integers(0, 5), st.integers(0, 7),
    st.integers(1, 6), st.sampled_from([b"I", b"U", b"D"]),
)  # fmt: skip
_transactions = st.lists(st.tuples(st.lists(_steps, max_size=8), st.booleans()), min_size=1, max_size=8)


def _stream(transactions: list[tuple[list[tuple[int, int, int, int, int, bytes]], bool]]) -> list[bytes]:
    described, messages, lsn = set(), [], 100
    for xid, (steps, is_followed) in enumerate(transactions):
        messages.append(begin(lsn, xid=xid, us=lsn * 3))
        for number, (oid, columns, again, emptied, times, kind) in enumerate(steps):
            if oid not in described or again == 0:
                described.add(oid)
                messages.append(relation(oid, f"t{oid}", columns=columns))
            if emptied == 0:
                messages.append(truncate(oid))
            messages.append(row(oid, f"{xid}.{number}" * times, kind))
        messages.append(commit(lsn))
        lsn += 50
        if is_followed:
            messages.append(keepalive(lsn - 20))
    return messages


#: Legal streams.
streams = _transactions.map(_stream)


def flatten(deliveries: list[tuple[int, Delivery]]) -> dict[tuple[int, Relation], list[tuple]]:
    """Events per worker and relation version, in order; an open part's end LSN is taken out."""
    told: dict[tuple[int, Relation], list[tuple]] = collections.defaultdict(list)
    for worker, delivery in deliveries:
        for change in delivery.changes:
            told[worker, change.relation] += [(event[0], event[1], *event[3:]) for event in pgoutput.events(change)]
    return dict(told)


def order_at_truncations(deliveries: list[tuple[int, Delivery]]) -> list[tuple]:
    """Per worker what lies between two truncations, as sets per relation."""
    told = []
    for worker in (0, 1):
        epochs: list[dict] = [collections.defaultdict(list)]
        for receiver, delivery in deliveries:
            for change in delivery.changes if receiver == worker else ():
                if isinstance(change, Truncation):
                    epochs.append(collections.defaultdict(list))
                    epochs[-1]["truncated"].append(change.relation.oid)
                else:
                    epochs[-1][change.relation.oid] += pgoutput.texts(change)
        told.append([dict(epoch) for epoch in epochs])
    return told


@settings(deadline=None, max_examples=examples(100))
@given(streams, st.lists(st.integers(1, 12), min_size=1, max_size=20), st.sampled_from([1, 60, 10_000]))
def test_cuts_do_not_show(messages: list[bytes], cuts: list[int], spill_bytes: int):
    whole, parts = assembler(), assembler(spill_bytes)
    expected = whole.feed(*pgoutput.gulp(messages))
    got, start, turn = [], 0, 0
    open_workers: set[int] = set()
    while start < len(messages):
        size = cuts[turn % len(cuts)]
        gulp, lengths = pgoutput.gulp(messages[start : start + size])
        keepalives = scan.keepalives(gulp, lengths)
        fed = [] if keepalives and parts.hear(keepalives) else parts.feed(gulp, lengths)
        start, turn = start + size, turn + 1
        if open_workers and not parts.in_transaction:
            assert open_workers <= {worker for worker, _ in fed}
            open_workers = set()
        for worker, delivery in fed:
            (open_workers.add if delivery.is_open else open_workers.discard)(worker)
            for change in delivery.changes:
                ends = [change.end_lsn] if isinstance(change, Truncation) else change.transactions.end_lsn.tolist()
                late = [end for end in ends if end > delivery.through]
                assert len(late) <= delivery.is_open
        got += fed
    assert not open_workers
    assert flatten(got) == flatten(expected)
    assert order_at_truncations(got) == order_at_truncations(expected)
    assert parts.received_lsn == whole.received_lsn
    assert parts.commit_us == whole.commit_us
    assert (parts.rows, parts.dropped_rows) == (whole.rows, whole.dropped_rows)
    assert parts.transactions == whole.transactions
    # Against a reading of the stream that knows nothing of lanes.
    assert sum(len(events) for events in flatten(got).values()) == parts.rows + sum(
        isinstance(change, Truncation) for _, delivery in got for change in delivery.changes
    )


@settings(deadline=None, max_examples=examples(120))
@given(streams, st.data())
def test_damaged_streams_raise_only_decode_errors(messages: list[bytes], data: st.DataObject):
    stream, lengths = pgoutput.gulp(messages)
    damaged = bytearray(stream)
    for _ in range(data.draw(st.integers(1, 6))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    target = assembler(100)
    try:
        target.feed(damaged, lengths)
    except errors.DecodeError:
        target.reset(2)
        assert target.feed(stream, lengths) is not None


def test_a_transaction_that_the_lake_has_must_come_again():
    target = assembler()
    target.expect([Applied(100, 7, 55), Applied(200), Applied(300, 9, 0)])
    assert target.unproven_lsn == 100
    feed(target, begin(50), relation(1), commit(50), begin(100, xid=7, us=55))
    assert target.unproven_lsn == 200
    feed(target, row(1, "a"), commit(100, 148), keepalive(200))
    feed(target, begin(200, xid=8), row(1, "b"), commit(200, 248), begin(300, xid=9, us=3), commit(300))
    assert target.unproven_lsn is None
    target.expect([Applied(400)])
    target.reset(2)
    assert target.unproven_lsn is None


@pytest.mark.parametrize(
    "messages",
    [
        [keepalive(101)],
        [begin(101, xid=7, us=55)],
        [begin(100, xid=8, us=55)],
        [begin(100, xid=7, us=56), commit(100)],
        [begin(50), commit(50, 120)],
    ],
)
def test_a_source_that_sends_what_comes_behind_it_is_another_one(messages: list[bytes]):
    target = assembler()
    target.expect([Applied(100, 7, 55)])
    with pytest.raises(errors.SourceReplaced, match="a transaction at 0/64 that is not in its WAL"):
        feed(target, *messages)


def test_what_is_none_of_the_maps_is_not_kept_without_end(monkeypatch: pytest.MonkeyPatch):
    """A source may make and publish any number of tables and types, and whoever lies for one any more."""
    monkeypatch.setattr(assembler_module, "_MOST_TYPES", 10)
    monkeypatch.setattr(assembler_module, "_MOST_RELATIONS", 100)
    monkeypatch.setattr(assembler_module, "_MOST_KEPT", 50)
    target = assembler()
    feed(target, relation(1), *(type_name(oid, f"t{oid}") for oid in range(20_000, 20_030)))
    assert len(target._type_names) == 10
    described = feed(target, begin(100), relation(1, type_oid=20_029), row(1, "a"), commit(100))
    assert described[0].changes[0].relation.columns[0].pg_type.name == "t20029"
    feed(target, *(relation(oid) for oid in range(1000, 1099)))
    with pytest.raises(errors.SourceError, match="more than 100 relations were described on one connection"):
        feed(target, relation(1099))
    target.reset(1)
    assert len(target._lane_of) == 1
    out = feed(target, begin(200), row(1, "b"), relation(1099), row(1099, "x"), commit(200))
    assert pgoutput.texts(out[0].changes[0]) == ["b"]
    with pytest.raises(errors.DecodeError, match="not described"):
        feed(target, begin(300), row(1000, "x"), commit(300))
