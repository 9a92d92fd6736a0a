"""The password of a source whose url comes back as it was shown, with ``***`` in its place. Pure."""

from __future__ import annotations

import re
import urllib.parse
from typing import Final

from kuvasz.admin.api.refusal import RequestRefused
from kuvasz.config.secrets import HIDDEN

#: A reference in a url of the map; what is between its braces may have signs of a url.
_REFERENCE: Final = re.compile(r"\$\{[^{}]*\}")

#: Parameters of libpq that say whose server a password is sent to, or as whom.
_LEADING: Final = frozenset({"host", "hostaddr", "port", "user", "service"})

_HINT: Final = (
    f"`{HIDDEN}` stands for the password that the map has, for the same user and hosts alone;"
    " give the url with its password"
)


def with_password(given: str, shown: str, raw: str) -> str:
    """Return a url with the password that the map has, if it has `***` instead of one.

    It is not sent to others than those that it was meant for.

    Args:
        given: The url.
        shown: How the one of the map is shown; empty without one.
        raw: How it is written.

    Raises:
        RequestRefused: The password is that of another user or host, or cannot be found in what is written.
    """
    if HIDDEN not in given:
        return given
    place, rest = _place(given)
    known, behind = _place(shown)
    if place != known or HIDDEN in rest or _leads(rest) != _leads(behind):
        raise RequestRefused(400, f"url has {HIDDEN} as its password, and the map has none for that place", _HINT)
    kept = _REFERENCE.findall(raw)
    written = _place(_REFERENCE.sub("\0", raw))[0]
    if "://" not in written:
        raise RequestRefused(400, "url is a reference as a whole: nobody knows which part the password is", _HINT)
    for one in kept:
        written = written.replace("\0", one, 1)
    return written + rest


def leads_elsewhere(given: str, shown: str) -> bool:
    """Say whether a url leads to other servers than another one, whoever asks them."""
    return _servers(given) != _servers(shown)


def _servers(url: str) -> tuple[str, list[tuple[str, str]]]:
    place, rest = _place(url)
    return place.partition("://")[2].rpartition("@")[2], [one for one in _leads(rest) if one[0] != "user"]


def _place(url: str) -> tuple[str, str]:
    """Return scheme, user and hosts of a url, and what comes behind them."""
    found = re.match(r"[^/?]*://[^/?]*", url)
    end = 0 if found is None else found.end()
    return url[:end], url[end:]


def _leads(rest: str) -> list[tuple[str, str]]:
    """Return what the query of a url says of where it leads, which outranks what stands before it."""
    parameters = urllib.parse.parse_qsl(rest.partition("?")[2], keep_blank_values=True)
    return [(name, value) for name, value in parameters if name in _LEADING]


__all__ = ["leads_elsewhere", "with_password"]
