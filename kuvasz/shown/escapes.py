"""Text of others as it may be shown: what steers a terminal, or breaks a line of a log, stands there as its escape.

Names come from sources, and whoever may create a table there chooses them. ESC and the control characters of C0 and
C1 move the cursor and write over lines (ECMA-48), the bidi overrides show a text in another order than it has
(Unicode annex 9), and a line break makes one line of a log two. Pure.
"""

from __future__ import annotations


def one_line(text: str) -> str:
    """Return a text on one line; what does not print stands there as Python and bash's ``$'…'`` escape it."""
    return text if text.isprintable() else "".join(map(_escaped, text))


def lines(text: str) -> str:
    """Return a text that has several lines of its own, each of them as `one_line` has it."""
    return "\n".join(map(one_line, text.split("\n")))


def json(document: str) -> str:
    """Return a JSON document as it may be printed, with the value it had.

    Outside of strings JSON has no character that does not print but line breaks.
    """
    return document if document.isprintable() else "".join(map(_escaped_in_json, document))


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    # To bash ``\x9b`` is a byte, to Python a character.
    return f"\\u{ord(character):04x}" if "\x7f" < character <= "\xff" else repr(character)[1:-1]


def _escaped_in_json(character: str) -> str:
    if character.isprintable() or character == "\n":
        return character
    code = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{code[at : at + 4]}" for at in range(0, len(code), 4))
