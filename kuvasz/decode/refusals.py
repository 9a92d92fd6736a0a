"""Why a value is refused: the reasons kernels return as numbers, and the error a caller sees.

A kernel ends with `(row, reason)`: row -1 and reason `FINE` when every value was taken, else the first row that
was not. Numbers, because a kernel cannot build texts; the texts stand here, in one table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from typing_extensions import override

from kuvasz.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Mapping

FINE: Final = 0
MALFORMED: Final = 1
OUT_OF_RANGE: Final = 2
TOO_MANY_DIGITS: Final = 3
TOO_MUCH_SCALE: Final = 4
NOT_FINITE: Final = 5
SEVERAL_DIMENSIONS: Final = 6
NOT_UTF8: Final = 7
TOO_LARGE: Final = 8

_UNEXPECTED = "the source sends text the type map does not expect: map the column to string, or report the type"

#: Reason -> what the value is, and what can be done about it.
_TEXTS: Mapping[int, tuple[str, str]] = {
    MALFORMED: ("is not the text form of its type", _UNEXPECTED),
    OUT_OF_RANGE: (
        "is outside the years 0001 to 9999",
        "choose out_of_range: null or clamp, or map the column to string",
    ),
    TOO_LARGE: (
        "is too large for its type in the lake",
        "the column's type has changed at the source or in the map: map it to a wider type, or to string",
    ),
    TOO_MANY_DIGITS: (
        "has more digits than its decimal type",
        "map the column to a wider decimal, or to string",
    ),
    TOO_MUCH_SCALE: (
        "has more fractional digits than its decimal type",
        "map the column to a decimal of larger scale, or to string",
    ),
    NOT_FINITE: (
        "is no finite number, which a decimal cannot hold",
        "map the column to string, or choose out_of_range: null",
    ),
    SEVERAL_DIMENSIONS: (
        "is an array of several dimensions, which a list cannot hold",
        "map the column to string",
    ),
    NOT_UTF8: (
        "is not valid UTF-8",
        "the source database has encoding SQL_ASCII and holds other bytes: convert them there",
    ),
}

#: Characters of a refused value that an error shows: enough to find it, too few to fill a log.
_SHOWN_CHARACTERS = 120


class ValueRefused(DecodeError):
    """A value its column's type cannot hold. The caller adds source, table, column and LSN.

    Attributes:
        row: Row of the cells it stands in.
        text: The value as it came, cut to a length that fits a message.
        reason: What is wrong with it.
    """

    def __init__(self, row: int, text: str, reason: str, *, hint: str | None = None) -> None:
        super().__init__(f"value {text!r} in row {row} {reason}", hint=hint)
        self.row = row
        self.text = text
        self.reason = reason

    @override
    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (self.row, self.text, self.reason, self.hint)

    def moved_to(self, row: int) -> ValueRefused:
        """Return the same refusal for another row number: of the array an element stands in, of a selection."""
        return ValueRefused(row, self.text, self.reason, hint=self.hint)


def _rebuild(row: int, text: str, reason: str, hint: str | None) -> ValueRefused:
    return ValueRefused(row, text, reason, hint=hint)


def refusal(row: int, value: bytes, reason: int) -> ValueRefused:
    """Return the error for a value a kernel refused with the number `reason`."""
    said, hint = _TEXTS[reason]
    # A character has at most four bytes; cut before decoding, the value may have a gigabyte.
    text = value[: 4 * _SHOWN_CHARACTERS].decode(errors="backslashreplace")
    if len(text) > _SHOWN_CHARACTERS or len(value) > 4 * _SHOWN_CHARACTERS:
        text = text[:_SHOWN_CHARACTERS] + "…"
    return ValueRefused(row, text, said, hint=hint)
