from __future__ import annotations

import random

import numpy as np

from kuvasz.route import scan
from tests.support import pgoutput


def find(table: scan.LaneTable, oid: int) -> int:
    return int(scan._find.py_func(table.oids, table.lanes, oid))


def test_the_lane_table_agrees_with_a_dict():
    table, expected, numbers = scan.LaneTable(), {}, random.Random(1)  # noqa: S311
    for lane in range(3000):
        oid = numbers.choice([numbers.randrange(1, 1 << 32), 16384 + lane, 16384])
        table.put(oid, lane)
        expected[oid] = lane
    assert {oid: find(table, oid) for oid in expected} == expected
    assert find(table, 5) == -2


def test_relation_messages_are_noticed():
    plain = [pgoutput.begin(1), pgoutput.row(1, "R"), pgoutput.commit(1), pgoutput.keepalive(9)]
    for messages, expected in (
        (plain, False),
        ([*plain, pgoutput.relation(1)], True),
        ([], False),
        ([b"w", b"k"], False),
    ):
        data, lengths = pgoutput.gulp(messages)
        assert scan.has_relation(scan.frozen_view(bytearray(data)), lengths) is expected


def test_described_relations_are_named_in_their_order():
    row = [pgoutput.begin(1), pgoutput.row(7, "R"), pgoutput.commit(1), pgoutput.keepalive(9)]
    cut_off = pgoutput.relation(99)[:28]
    for messages, expected in (
        ([], []),
        (row, []),
        (
            [*row, pgoutput.relation(70_000), *row, pgoutput.relation(1), pgoutput.relation(1 << 31)],
            [70_000, 1, 1 << 31],
        ),
        ([b"w", pgoutput.relation(5), cut_off], [5]),
    ):
        data, lengths = pgoutput.gulp(messages)
        assert scan.relation_oids(scan.frozen_view(bytearray(data)), lengths) == expected


def test_keepalives_alone_are_told_from_all_else():
    one, two = pgoutput.keepalive(9), pgoutput.keepalive(10, reply=True)
    begun = pgoutput.begin(1)
    for messages, expected in (
        ([one], True),
        ([one, two], True),
        ([one] * 64, True),
        ([one] * 65, False),  # a gulp like any other
        ([], False),
        ([one, begun], False),
        ([begun], False),
        ([b"w" + one[1:]], False),
        ([one[:17], one + b"x"], False),
        ([one[:9], one[9:]], False),
    ):
        data, lengths = pgoutput.gulp(messages)
        assert scan.keepalives(bytearray(data), lengths) == (bytes(data) if expected else b"")


def test_group_sorts_by_lane_and_counts_whole_rows():
    lane, length = np.array([1, 0, 1, 1], np.int32), np.array([5, 6, 7, 8], np.uint32)
    order, lanes = scan.group(lane, length, 4, 3, 3)
    assert order.tolist() == [1, 0, 2, 3]
    assert lanes.tolist() == [[0, 1, 6, 1, 6], [1, 3, 20, 2, 12], [4, 0, 0, 0, 0]]
