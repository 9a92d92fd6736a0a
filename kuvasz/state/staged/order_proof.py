"""Whether a source is read as a group of the log needs it, which hears what others have ordered. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kuvasz import errors
from kuvasz.state.staged.orders import too_new

if TYPE_CHECKING:
    from kuvasz.state.staged.orders import GivenOrder, StreamOrder
    from kuvasz.state.staged.ports import StagedPosition


def prove_order(source: str, wanted: StreamOrder, found: GivenOrder | None, heard: StagedPosition | None) -> None:
    """Make sure that what a group hears of a source is read as it needs that.

    Args:
        source: The source's name.
        wanted: As the group would order it.
        found: As the first one has; None: nobody is to read it.
        heard: How far it is staged, of the past that the group goes by; None: of that nothing is.

    Raises:
        SourceError: It is not, for now.
    """
    place = errors.place_of(source)
    if found is None:
        raise errors.SourceError(
            f"{place}: none of the processes without a group has it read",
            hint="start those with --role read and --role apply, and this source in their map; it is tried again",
        )
    if heard is None or heard.past != found.past:
        raise errors.SourceError(f"{place}: its stream is another one by now", hint="kuvasz looks at it again")
    order = found.order
    if (error := too_new(source, order)) is not None:
        raise error
    if (order.slot, order.system_id, order.is_own_alone) != (wanted.slot, wanted.system_id, wanted.is_own_alone):
        raise errors.SourceError(
            f"{place}: the processes without a group have slot {order.slot} of cluster {order.system_id} read"
            f"{' with origin: none' if order.is_own_alone else ''}, and this one would have {wanted.slot} of"
            f" {wanted.system_id}{' with origin: none' if wanted.is_own_alone else ''}",
            hint="give it the name, the sid, the url and the origin that it has in their map; it is tried again",
        )
    if missing := set(wanted.publications) - set(order.publications):
        raise errors.SourceError(
            f"{place}: publication {min(missing)} is not in what is read",
            hint="put its tables into the map of the processes without a group, too; it is tried again",
        )


__all__ = ["prove_order"]
