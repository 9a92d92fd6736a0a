"""Names of the log's objects: whose they are, and which of two came later. Pure.

    WORD OF THE LOG - NUMBER OF THE LEASE - NUMBER - chance .log

None was ever another's: a coordinator that was restored repeats numbers.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator

from kuvasz.state.staged.ports import LogLease


def object_names(lease: LogLease) -> Iterator[str]:
    """Yield the names of a holder's objects, one after another."""
    for number in itertools.count(1):
        yield f"{lease.log}-{lease.number:010d}-{number:010d}-{uuid.uuid4().hex[:8]}.log"


def is_of_before(name: str, lease: LogLease) -> bool:
    """Whether an object, or one that was being written, is of this log, and of a holder that can write no more."""
    log, _, rest = name.partition("-")
    number = rest.partition("-")[0]
    if log != lease.log or not number.isdecimal():
        return False
    return int(number) <= lease.number and int(number) not in lease.others


__all__ = ["is_of_before", "object_names"]
