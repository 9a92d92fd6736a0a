"""Which of two bodies takes payloads from a connection: both behave alike.

`KernelDrain` is compiled. `PlainDrain` serves where libpq's addresses cannot be had, and where the 70 MB that numba
takes are worth more than the time that it spares.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kuvasz.source.drain.plain import Drain, PlainDrain

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn


def best_drain(pgconn: PGconn, *, compiled: bool = True) -> Drain:
    """Return the fastest drain that works on this platform.

    Args:
        pgconn: The connection.
        compiled: It may be one that is compiled.
    """
    if not compiled:
        return PlainDrain(pgconn)
    from kuvasz.source.drain import kernel

    functions = kernel.libpq_functions(pgconn)
    return PlainDrain(pgconn) if functions is None else kernel.KernelDrain(pgconn, functions)


__all__ = ["best_drain"]
