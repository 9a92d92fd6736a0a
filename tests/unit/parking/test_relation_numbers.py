from __future__ import annotations

from kuvasz.model import TableName
from kuvasz.parking.relation_numbers import RelationNumbers
from tests.support.changes import ITEMS, relation

OTHERS = relation(table=TableName(schema="public", name="others"), oid=2)
THINGS = relation(table=TableName(schema="public", name="things"), oid=3)


def test_relations_are_numbered_in_order() -> None:
    numbers = RelationNumbers()
    assert numbers.find(ITEMS) is None
    assert [numbers.add(one) for one in (ITEMS, OTHERS)] == [0, 1]
    assert (numbers.find(OTHERS), numbers[0], len(numbers)) == (1, ITEMS, 2)


def test_what_is_cut_off_is_numbered_anew() -> None:
    numbers = RelationNumbers()
    numbers.add(ITEMS)
    numbers.keep(1)
    numbers.add(OTHERS)
    numbers.cut()
    assert (numbers.find(ITEMS), numbers.find(OTHERS), len(numbers)) == (0, None, 1)
    assert numbers.add(THINGS) == 1
