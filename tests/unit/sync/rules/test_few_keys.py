from __future__ import annotations

import sys

from kuvasz.sync.rules.few_keys import FewKeys


def test_it_is_a_set_of_what_was_added_and_not_discarded() -> None:
    keys: FewKeys[str] = FewKeys()
    assert not keys
    for key in ("a", "b", "a", "c"):
        keys.add(key)
    keys.discard("b")
    keys.discard("b")
    assert (list(keys), "a" in keys, "b" in keys, len(keys), bool(keys)) == (["a", "c"], True, False, 2, True)


def test_it_takes_little_while_it_is_empty() -> None:
    assert sys.getsizeof(FewKeys()) <= 64 < sys.getsizeof(set()) / 3
