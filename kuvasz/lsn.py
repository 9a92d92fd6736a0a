"""LSNs: byte positions in a source's write-ahead log, as plain 64-bit integers.

PostgreSQL prints them as two hexadecimal halves, ``16/B374D848`` (manual, section 8.20 "pg_lsn Type").
"""

from __future__ import annotations

import re

_TEXT = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")


def parse(text: str) -> int:
    """Return the integer value of an LSN in PostgreSQL's text form.

    Raises:
        ValueError: The text is not of the form ``X/X``.
    """
    match = _TEXT.fullmatch(text)
    if match is None:
        msg = f"not an LSN: {text!r}"
        raise ValueError(msg)
    return int(match[1], 16) << 32 | int(match[2], 16)


def render(lsn: int) -> str:
    """Return an LSN in PostgreSQL's text form."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
