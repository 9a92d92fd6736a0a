"""Whose the rows of a chunk of several sources are."""

from __future__ import annotations

import numpy as np

from kuvasz.decode import tuples
from kuvasz.fold import fold
from kuvasz.modes import owners
from kuvasz.modes.owners import Owner
from tests.support.changes import TABLE, delete, insert, update
from tests.support.shapes import CLONE
from tests.support.wires import joined

EU, US = (Owner(source=name, table=TABLE, sid=name, end=end) for name, end in (("eu", 2), ("us", 5)))


def changes() -> tuples.RowChanges:
    data, lengths = joined([insert(1), delete(2), update(3, old=1), insert(4), delete(5)])
    return tuples.split_changes(np.frombuffer(data, np.uint8), lengths, 3)


def test_old_rows_are_of_who_sent_them() -> None:
    found = owners.attach([EU, US], changes())
    assert found.new.whose is not None
    assert found.old.whose is not None
    assert (found.new.whose.tolist(), found.old.whose.tolist()) == ([0, 0, 1, 1, 1], [0, 1, 1])


def test_rows_have_their_owners_sid() -> None:
    found = owners.attach([EU, US], changes())
    sids = owners.sids([EU, US], found.new, np.array([4, 0, 2], np.int32))
    assert sids is not None
    assert owners.column(sids).to_pylist() == ["us", "eu", "us"]
    assert owners.sids([EU, US], changes().new) is None


def test_a_key_is_of_who_took_it_or_gave_it_up() -> None:
    found = owners.attach([EU, US], changes())
    folded = fold.fold(found.tag, CLONE.keys(found.new), CLONE.keys(found.old), found.old_row)
    whose = owners.of_keys(found, folded)
    assert whose is not None
    numbers = folded.keys.lo - CLONE.keys(found.new).lo[0] + np.uint64(1)  # the first of the new rows is 1
    assert {int(key): int(owner) for key, owner in zip(numbers, whose, strict=True)} | {1: -1} == {
        1: -1, 2: 0, 3: 1, 4: 1, 5: 1
    }  # fmt: skip
    assert owners.of_keys(changes(), folded) is None
