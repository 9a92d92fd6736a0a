"""Whether the way to a server keeps others from listening, and from answering in its place. Pure."""

from __future__ import annotations

import contextlib
import ipaddress

#: libpq's modes of TLS (manual, section 34.19.4 "SSL Mode Descriptions").
VERIFIED = "verify-full"

_UNVERIFIED = {
    "verify-ca": "any server that the authority has certified may answer",
    "require": "whoever is in between may answer",
}


def weakness(address: str, sslmode: str, *, is_encrypted: bool) -> str:
    """Return what somebody between here and a server could do; nothing if there is nobody or he can do nothing.

    Args:
        address: The server's, as it was connected to: an IP address, or the folder of a socket; empty: not known.
        sslmode: The sslmode of the connection.
        is_encrypted: Whether it has TLS.
    """
    if is_local(address) or (sslmode == VERIFIED and is_encrypted):
        return ""
    if not is_encrypted:
        return "not encrypted: whoever is in between may read and change what is sent"
    return _UNVERIFIED.get(sslmode, f"encrypted for as long as the server says so: {_UNVERIFIED['require']}")


def is_local(address: str) -> bool:
    """Whether a server is of this machine."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(address).is_loopback
    return address.startswith(("/", "@"))


__all__ = ["VERIFIED", "is_local", "weakness"]
