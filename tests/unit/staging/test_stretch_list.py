"""What lies in memory, and what it weighs, against counting it each time."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kuvasz.staging.stretch import Stretch
from kuvasz.staging.stretch_list import StretchList


def stretch(number: int, *, open_lsn: int = 0, has_rows: bool = True) -> Stretch:
    return Stretch(
        number=number, data=bytes(number), lengths=np.array([number], np.uint32), lsn=number, ended=number,
        open_lsn=open_lsn, has_rows=has_rows,
    )  # fmt: skip


@given(st.lists(st.sampled_from(["rows", "open", "moves", "stage", "drop", "give up"]), max_size=40))
def test_what_it_weighs_is_what_is_there(steps: list[str]) -> None:
    kept, model, staged, number = StretchList(), list[Stretch](), 0, 0
    for step in steps:
        if step in {"rows", "open", "moves"}:
            number += 1
            one = stretch(number, open_lsn=int(step == "open"), has_rows=step != "moves")
            if step == "moves" and model and model[-1].only_moves and model[-1].number > staged:
                model.pop()
            model.append(one)
            kept.add([one])
        elif step == "stage" and model:
            staged = max(staged, model[len(model) // 2].number)
            kept.staged(staged)
        elif step == "drop" and model and model[0].number <= staged:
            assert kept.drop_first() is model.pop(0)
        elif step == "give up":
            before = len(model)
            while model and model[-1].open_lsn:
                model.pop()
            assert kept.give_up_open() == (len(model) < before)
        waiting = [one for one in model if one.number > staged]
        sizes = [one.weight if one.has_rows else 0 for one in waiting]
        assert kept.bytes == sum(one.weight for one in model)
        assert kept.waiting_bytes == (sum(sizes) if sizes else None)
        assert list(kept.waiting()) == waiting
        for at in range(number + 1):
            assert kept.behind(at) is next((one for one in model if one.number > at), None)


def test_an_idle_source_fills_no_memory() -> None:
    kept = StretchList()
    kept.add([stretch(number, has_rows=False) for number in range(1, 1000)])
    assert (len(kept), kept.first.number) == (1, 999)
    kept.staged(999)
    kept.add([stretch(1000, has_rows=False)])
    assert len(kept) == 2, "what is staged stays as it was staged"
    kept.clear()
    assert (kept.bytes, kept.waiting_bytes) == (0, None)
