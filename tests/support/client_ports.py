"""Ports of connections whose process lives: a server may still be at work for one that was killed."""

from __future__ import annotations

import psutil


def of_the_living() -> set[int]:
    """Return the local ports of all connections that a process of this user has open."""
    return {one.laddr.port for one in psutil.net_connections("tcp") if one.laddr and one.pid is not None}


__all__ = ["of_the_living"]
