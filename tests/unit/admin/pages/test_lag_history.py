"""The lag of the last hour."""

from __future__ import annotations

import asyncio
from typing import Any

from kuvasz.admin.pages.lag_history import LagHistory
from tests.support.snapshots import NOW, snapshot


class Sees:
    """An observer of one moment."""

    async def show(self, make: Any) -> Any:
        return make(snapshot())


def test_an_hour_is_kept_of_each_source_that_there_is() -> None:
    seen: Any = Sees()
    history = LagHistory(seen)
    for number in range(200):
        history.note(30.0 * number, {"eu": float(number), "us": None}, {"eu": 60 * number, "us": 1})
    assert (len(history.of("eu")), history.of("eu")[-1], history.of("nobody")) == (120, (5970.0, 199.0), ())
    assert (history.of("us"), history.rates()) == ((), {"eu": 2.0, "us": 0.0})
    history.note(6000.0, {"us": 1.0}, {"us": 0})
    assert (history.of("eu"), history.of("us")) == ((), ((6000.0, 1.0),))
    assert history.rates() == {}, "it was begun anew"


def test_one_that_came_later_has_the_moments_since_then() -> None:
    seen: Any = Sees()
    history = LagHistory(seen)
    history.note(0.0, {"eu": 1.0}, {"eu": 1})
    history.note(30.0, {"eu": 2.0, "us": 3.0}, {"eu": 1, "us": 1})
    assert (history.of("eu"), history.of("us")) == (((0.0, 1.0), (30.0, 2.0)), ((30.0, 3.0),))


def test_what_an_observer_sees_is_noted() -> None:
    async def some() -> LagHistory:
        seen: Any = Sees()
        history = LagHistory(seen)
        task = asyncio.create_task(history.run())
        while not history.of("shop_eu"):  # noqa: ASYNC110 (of a loop that tells nobody)
            await asyncio.sleep(0)
        task.cancel()
        return history

    assert asyncio.run(some()).of("shop_eu") == ((NOW, 0.0),)
