"""The verdict on one table of one source: what the last comparison with its source found. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Self


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The verdict. Values of rows are no part of it."""

    at: float = 0.0  #: unix seconds of the last comparison that came to an end; 0: none has
    lsn: str = ""  #: of the source, at which the two were compared then
    rows: int = 0  #: that the source had
    differences: int = 0  #: keys that differed
    left: int = 0  #: of them, those that differ still
    error: str = ""  #: why the last attempt came to no end, or what it left open
    tried_at: float = 0.0  #: unix seconds of the last attempt
    is_left_out: bool = False  #: there is nothing to compare, as `error` says, and that is as it should be

    undecided: int = 0  #: keys that changed all the time, so that nobody knows of them

    @property
    def is_failing(self) -> bool:
        """Whether the last attempt came to no end."""
        return self.is_open and not self.undecided

    @property
    def is_open(self) -> bool:
        """Whether nobody knows of all of the table whether it is equal to its source."""
        return bool(self.error) and not self.is_left_out

    @classmethod
    def of_json(cls, found: Mapping[str, Any]) -> Self:
        """Return the verdict from its JSON, which are its fields.

        Raises:
            ValueError: The JSON is another one's; so for KeyError, TypeError and AttributeError.
        """
        return cls(
            at=float(found["at"]), lsn=str(found["lsn"]), rows=int(found["rows"]),
            differences=int(found["differences"]), left=int(found["left"]), error=str(found["error"]),
            tried_at=float(found["tried_at"]), is_left_out=bool(found.get("is_left_out")),
            undecided=int(found.get("undecided", 0)),
        )  # fmt: skip

    def as_json(self) -> dict[str, Any]:
        """Return the JSON of it."""
        return dataclasses.asdict(self)


__all__ = ["Verdict"]
