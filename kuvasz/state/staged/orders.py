"""What the process that applies wants read, and what the one that reads says to that: an order for each source.

Both stand in the index, so either may begin, or begin again, without the other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Final, Self

from kuvasz import errors, lsn
from kuvasz.model import Applied, SourcePosition
from kuvasz.state.ports import SourceRecord

#: What a reader may say that a stream was lost by. Anything else is tried again.
_KINDS: Final = {
    kind.__name__: kind for kind in (errors.SourceError, errors.SourceRefused, errors.SlotLost, errors.SourceReplaced)
}

#: What an order may ask for.
_ASKED: Final = frozenset({"slot", "publications", "system_id", "timeline", "is_own_alone"})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StreamOrder:
    """The stream that is wanted of a source. Another one is another connection."""

    slot: str
    publications: tuple[str, ...]
    system_id: str  #: the cluster that has to answer
    timeline: int  #: which it was on when it was looked at last; 0: unknown
    is_own_alone: bool = False  #: without changes that came to the source by replication
    #: what else a later version of kuvasz asks for: whoever does not know it would receive something else
    beyond: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the JSON of it."""
        return {
            "slot": self.slot, "publications": list(self.publications), "system_id": self.system_id,
            "timeline": self.timeline, "is_own_alone": self.is_own_alone,
        }  # fmt: skip

    @classmethod
    def of_json(cls, found: Mapping[str, Any]) -> Self:
        """Return the order from its JSON."""
        return cls(
            slot=found["slot"], publications=tuple(found["publications"]), system_id=found["system_id"],
            timeline=int(found["timeline"]), is_own_alone=bool(found.get("is_own_alone", False)),
            beyond=tuple(sorted(found.keys() - _ASKED)),
        )  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class KnownPast:
    """What the lake has of a source, by which it proves at each connection that it is the same."""

    standing: SourceRecord = dataclasses.field(default_factory=SourceRecord)
    applied_lsn: int = 0  #: everything before it may be in the lake
    applied: tuple[Applied, ...] = ()  #: the last transaction of each table there
    copied: tuple[SourcePosition, ...] = ()  #: the copies there that no transaction has followed

    def as_json(self) -> dict[str, Any]:
        """Return the JSON of it."""
        return {
            "standing": self.standing.as_json(), "applied_lsn": lsn.render(self.applied_lsn),
            "applied": [list(one) for one in self.applied],
            "copied": [[lsn.render(one.lsn), one.started_us] for one in self.copied],
        }  # fmt: skip

    @classmethod
    def of_json(cls, found: Mapping[str, Any]) -> Self:
        """Return it from its JSON."""
        return cls(
            standing=SourceRecord.of_json(found["standing"]), applied_lsn=lsn.parse(found["applied_lsn"]),
            applied=tuple(Applied(*map(int, one)) for one in found["applied"]),
            copied=tuple(SourcePosition(lsn=lsn.parse(at), started_us=int(us)) for at, us in found["copied"]),
        )  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GivenOrder:
    """An order as it stands in the index."""

    past: int  #: as `StagedPosition.past`
    order: StreamOrder
    known: KnownPast


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StreamAnswer:
    """What the process that reads says to an order."""

    is_receiving: bool  #: it is connected
    error: errors.SourceError | None  #: why it is not, or was not the last time
    standing: SourceRecord  #: what it found out about the server
    past: int = 0  #: of the order

    def as_json(self) -> dict[str, Any]:
        """Return the JSON of it."""
        error = self.error
        told = None if error is None else {"kind": _kind(error), "message": error.message, "hint": error.hint}
        return {"is_receiving": self.is_receiving, "error": told, "standing": self.standing.as_json()}

    @classmethod
    def of_json(cls, past: int, found: Mapping[str, Any]) -> Self:
        """Return the answer to the order of a past from its JSON."""
        told, error = found["error"], None
        if told is not None:
            error = _KINDS.get(told["kind"], errors.SourceError)(told["message"], hint=told["hint"])
        return cls(
            is_receiving=bool(found["is_receiving"]), error=error, past=past,
            standing=SourceRecord.of_json(found["standing"]),
        )  # fmt: skip


def too_new(source: str, order: StreamOrder) -> errors.SourceError | None:
    """Return the error of an order that asks for what this version does not know; None: it knows all."""
    if not order.beyond:
        return None
    return errors.SourceError(
        f"{errors.place_of(source)}: its order asks for {', '.join(order.beyond)}, which this version does not know",
        hint="run the version of kuvasz that the others of the cluster run, or a newer one",
    )


def as_source_error(error: errors.KuvaszError | None) -> errors.SourceError | None:
    """Return an error as one of a source: whatever else was the matter at the reader passes, or it ends."""
    if error is None or isinstance(error, errors.SourceError):
        return error
    return errors.SourceError(error.message, hint=error.hint)


def _kind(error: errors.SourceError) -> str:
    return next((kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _KINDS), "SourceError")


def orders_of(found: Iterable[tuple[str, int, Any, Any]]) -> dict[str, GivenOrder]:
    """Return the orders of rows: source, past, order, what is known."""
    return {
        source: GivenOrder(past=past, order=StreamOrder.of_json(order), known=KnownPast.of_json(known))
        for source, past, order, known in found
    }


__all__ = ["GivenOrder", "KnownPast", "StreamAnswer", "StreamOrder", "as_source_error", "orders_of", "too_new"]
