from __future__ import annotations

from ruamel.yaml import YAML

from kuvasz.config.written.spot import Spot

TEXT = """\
a: |
  one
  # two

  # behind

b:    # nothing
c:
- x
- {d: e}  # last
# behind
"""


def test_an_entry_ends_before_the_comments_behind_it() -> None:
    spots = Spot.all_of(YAML(typ="rt").compose(TEXT), TEXT)
    assert [one.name for one in spots] == ["a", "b", "c"]
    assert [TEXT[one.start : one.end] for one in spots] == [
        "a: |\n  one\n  # two\n\n  # behind",
        "b:",
        "c:\n- x\n- {d: e}",
    ]
    assert [one.value_start == one.end for one in spots] == [False, True, False]


def test_an_entry_of_a_list_begins_with_its_dash() -> None:
    root = YAML(typ="rt").compose(TEXT)
    entries = Spot.all_of(root.value[2][1], TEXT)
    assert [TEXT[one.start : one.end] for one in entries] == ["- x", "- {d: e}"]
    assert [one.name for one in entries] == [None, None]
