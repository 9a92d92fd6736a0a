"""What the map may make of a table whose history is random, and what its rows are then."""

from __future__ import annotations

import dataclasses
import decimal
from collections.abc import Iterable, Mapping
from typing import Any

from kuvasz.modes.row_rules import pseudonym

#: Of the masks; not a real one.
SECRET = "of the histories"

_NUMBER = "CAST(regexp_extract(CAST(a AS string), '[0-9]+', 0) AS bigint)"


@dataclasses.dataclass(frozen=True)
class Rule:
    """Options of a table that hide or compute something."""

    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    reads: tuple[str, ...] = ()  #: columns that a filter or a computed column looks at

    @property
    def is_plain(self) -> bool:
        return not self.options

    @property
    def mask(self) -> Mapping[str, str]:
        return self.options.get("mask", {})

    @property
    def is_computed(self) -> bool:
        return "set" in self.options

    def keeps(self, row: int, read: list[int | None]) -> bool:
        """Whether a row passes the filter.

        Args:
            row: Its id.
            read: What it has in `reads`.
        """
        if "filter" not in self.options:
            return True
        number = read[0] if self.reads else row
        return number is None or number % 3 != 1


RULES = (
    Rule(),
    Rule({"filter": "id % 3 <> 1"}),
    Rule({"mask": {"b": "hmac", "c": "redact"}}),
    Rule({"filter": f"a IS NULL OR {_NUMBER} % 3 <> 1"}, ("a",)),
    Rule({"set": {"id": "id", "tag": "tag", "c": "c",
                  "both": "concat_ws('/', CAST(a AS string), CAST(b AS string))"}}, ("a", "b")),
)  # fmt: skip


def pseudonyms(numbers: Iterable[int]) -> dict[str, int]:
    """Return pseudonym -> number, of every text that a number is shown as."""
    return {pseudonym(form.format(one), SECRET.encode()): one for one in numbers for form in ("{}", "{}.00")}


def numbers_of(text: str) -> list[int]:
    """Return the numbers in the column that is computed of two."""
    return [int(decimal.Decimal(part)) for part in text.split("/") if part]


__all__ = ["RULES", "SECRET", "Rule", "numbers_of", "pseudonyms"]
