"""Orders and what is said to them, as they are written down."""

from __future__ import annotations

import pytest

from kuvasz import errors
from kuvasz.state.ports import SourceRecord
from kuvasz.state.staged.order_proof import prove_order
from kuvasz.state.staged.orders import GivenOrder, KnownPast, StreamAnswer, StreamOrder, as_source_error, too_new
from kuvasz.state.staged.ports import StagedPosition


class Forced(errors.SlotLost):
    """One of a kind that nobody else knows."""


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (errors.SlotLost("gone", hint="copy"), errors.SlotLost),
        (errors.SourceReplaced("another one", hint="copy"), errors.SourceReplaced),
        (errors.SourceRefused("may not", hint="grant"), errors.SourceRefused),
        (errors.SourceError("away"), errors.SourceError),
        (Forced("gone"), errors.SlotLost),
        (errors.StateError("no answer", hint="wait"), errors.SourceError),
    ],
)
def test_an_error_is_of_its_kind_for_the_other_process(error: errors.KuvaszError, kind: type) -> None:
    given = StreamAnswer(is_receiving=False, error=as_source_error(error), standing=SourceRecord(timeline=4))
    found = StreamAnswer.of_json(7, given.as_json())
    assert type(found.error) is kind
    assert str(found.error) == str(error)
    assert (found.past, found.standing, found.is_receiving) == (7, given.standing, False)


def test_what_a_later_version_asks_for_is_not_left_out_unseen() -> None:
    """Else whoever reads would receive something else than was ordered."""
    order = StreamOrder(slot="s", publications=("p",), system_id="7", timeline=1)
    assert StreamOrder.of_json(order.as_json()) == order
    assert too_new("shop_eu", order) is None
    later = StreamOrder.of_json({**order.as_json(), "is_binary": True})
    error = too_new("shop_eu", later)
    assert "source shop_eu" in str(error)
    assert "asks for is_binary, which this version does not know" in str(error)
    heard = StagedPosition(lsn=1, ended=1, past=5)
    with pytest.raises(errors.SourceError, match="asks for is_binary"):
        prove_order("shop_eu", order, GivenOrder(past=5, order=later, known=KnownPast()), heard)


def test_who_is_well_has_no_error() -> None:
    assert as_source_error(None) is None
    given = StreamAnswer(is_receiving=True, error=None, standing=SourceRecord(), past=3)
    assert StreamAnswer.of_json(3, given.as_json()) == given
