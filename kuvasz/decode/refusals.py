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
HAS_BOUNDS: Final = 9
CUT_AWAY: Final = 10

_AS_TEXT = "`types: {column: string}`"

#: Reason -> what the value is, what the map can say of it, and the policy that lets it pass where it is no key.
_TEXTS: Mapping[int, tuple[str, str, str]] = {
    MALFORMED: ("is not the text form of its type", _AS_TEXT, ""),
    OUT_OF_RANGE: ("is outside the years 0001 to 9999", _AS_TEXT, "`out_of_range: null | clamp`"),
    TOO_LARGE: ("is too large for its type in the lake", _AS_TEXT, ""),
    TOO_MANY_DIGITS: (
        "has more digits than its decimal type",
        f"`types: {{column: decimal(p,s)}}` with more digits or {_AS_TEXT}",
        "",
    ),
    TOO_MUCH_SCALE: (
        "has more fractional digits than its decimal type",
        f"`types: {{column: decimal(p,s)}}` with a larger scale or {_AS_TEXT}",
        "",
    ),
    NOT_FINITE: ("is no finite number, which a decimal cannot hold", _AS_TEXT, "`out_of_range: null`"),
    SEVERAL_DIMENSIONS: ("is an array of several dimensions, which a list cannot hold", _AS_TEXT, ""),
    HAS_BOUNDS: (
        "has bounds of its own, which a list does not keep, so another row may be the same there",
        _AS_TEXT,
        "",
    ),
    NOT_UTF8: ("is not valid UTF-8", "", ""),
    CUT_AWAY: ("makes its row larger than `pipeline.max_row_bytes`", "", ""),
}
_CUT_AWAY = "raise `pipeline.max_row_bytes`, where there is memory of ten times the row, and start again"
_NOT_UTF8 = "the source database has encoding SQL_ASCII and holds other bytes: convert them there"

#: Characters of a refused value that an error shows: enough to find it, too few to fill a log.
_SHOWN_CHARACTERS = 120


class ValueRefused(DecodeError):
    """A value its column's type cannot hold. The caller adds source, table, column and LSN.

    Attributes:
        row: Row of the cells it stands in.
        text: The value as it came, cut to a length that fits a message.
        reason: What is wrong with it.
        number: The same as the kernels' number.
    """

    def __init__(self, row: int, text: str, number: int) -> None:
        self.reason = _TEXTS[number][0]
        super().__init__(f"value {text!r} in row {row} {self.reason}", hint=way_out(number, "column"))
        self.row = row
        self.text = text
        self.number = number

    @override
    def __reduce__(self) -> tuple[object, ...]:
        return ValueRefused, (self.row, self.text, self.number)

    def moved_to(self, row: int) -> ValueRefused:
        """Return the same refusal for another row number: of the array an element stands in, of a selection."""
        return ValueRefused(row, self.text, self.number)


def way_out(number: int, column: str, *, has_policy: bool = True) -> str:
    """Return what a person can do about a value.

    Args:
        number: Why it was refused.
        column: Its name at the source.
        has_policy: Whether the table's policy goes for the column: not for keys and inputs of expressions.
    """
    if number == NOT_UTF8:
        return _NOT_UTF8
    if number == CUT_AWAY:
        return _CUT_AWAY
    _, ways, policy = _TEXTS[number]
    ways = f"{policy} or {ways}" if policy and has_policy else ways
    return f"put {ways.replace('{column:', f'{{{column}:')} into the table's entry in the map and start again"


def refusal(row: int, value: bytes, reason: int) -> ValueRefused:
    """Return the error for a value a kernel refused with the number `reason`."""
    # A character has at most four bytes; cut before decoding, the value may have a gigabyte.
    text = value[: 4 * _SHOWN_CHARACTERS].decode(errors="backslashreplace")
    if len(text) > _SHOWN_CHARACTERS or len(value) > 4 * _SHOWN_CHARACTERS:
        text = text[:_SHOWN_CHARACTERS] + "…"
    return ValueRefused(row, text, reason)
