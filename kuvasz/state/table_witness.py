"""What a witness knows of one table, and its JSON. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final, Self

from kuvasz import lsn
from kuvasz.model import SourcePosition
from kuvasz.state.ports import FormerPosition

_NEVER: Final = FormerPosition(-1, 0)


@dataclasses.dataclass(slots=True, eq=False)
class TableWitness:
    """What is noted of one table, by source; what changes it says whether anything changed."""

    positions: dict[str, int] = dataclasses.field(default_factory=dict)
    given_up: dict[str, FormerPosition] = dataclasses.field(default_factory=dict)

    @classmethod
    def of_json(cls, found: Mapping[str, Any]) -> Self:
        """Return it from its JSON.

        Raises:
            ValueError: It is none.
            KeyError: It is none.
            TypeError: It is none.
            AttributeError: It is none.
        """
        return cls(
            {source: lsn.parse(text) for source, text in found["positions"].items()},
            {source: FormerPosition(int(history), lsn.parse(text))
             for source, (history, text) in found.get("given_up", {}).items()},
        )  # fmt: skip

    def as_json(self) -> dict[str, Any]:
        """Return its JSON."""
        return {
            "positions": {source: lsn.render(position) for source, position in self.positions.items()},
            "given_up": {source: (given.history, lsn.render(given.lsn)) for source, given in self.given_up.items()},
        }

    def note(self, positions: Mapping[str, int]) -> bool:
        """See `kuvasz.state.ports.Witness.note`."""
        is_new = any(self.positions.get(source) != position for source, position in positions.items())
        if not is_new and self.given_up.keys().isdisjoint(positions):
            return False
        self.positions.update(positions)
        self.given_up = {source: given for source, given in self.given_up.items() if source not in positions}
        return True

    def drop(self, source: str) -> bool:
        """See `kuvasz.state.ports.Witness.drop`."""
        return self.positions.pop(source, None) is not None

    def give_up(self, source: str, position: SourcePosition) -> bool:
        """See `kuvasz.state.ports.Witness.give_up`."""
        given = FormerPosition(position.history, position.lsn)
        if self.given_up.get(source, _NEVER) >= given:
            return False
        self.given_up[source] = given
        return True

    def expect(self, source: str, position: SourcePosition) -> bool:
        """See `kuvasz.state.ports.Witness.expect`."""
        given = self.given_up.get(source)
        if given is None or (below := given.below(position)) == given:
            return False
        self.given_up[source] = below
        return True


__all__ = ["TableWitness"]
