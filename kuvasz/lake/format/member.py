"""Whose rows a data file holds, where several tables of a source are one target (`partitions_regex`). Pure.

The rows have no column that says so, and need none: kuvasz writes each member's rows to files of their own, and the
files' names say whose they are. Keys are hashed with a seed of the member's own, so one member's changes never meet
another's rows: a row may move between two of them in one transaction, in whatever order its parts are applied, and a
TRUNCATE or another copy takes the files of one member alone.

The tables of tenants (`schemas`) need none of that: their rows have a sid, and are kept apart as those of sources
are.
"""

from __future__ import annotations

import hashlib
import re

from kuvasz.config import names

#: What every data file's name begins with.
PREFIX = "kvsz-"

_OF_MEMBER = re.compile(r"/kvsz-m([0-9]+)-[^/]*$")


def of(source: str) -> str:
    """Return which member's rows those of a source are, see `names.member_name`; empty if a sid tells them apart."""
    member = names.member_of(source)
    return member if names.tenant_of(member) is None else ""


def prefix(source: str) -> str:
    """Return what the names of data files with a source's rows begin with."""
    member = of(source)
    return f"{PREFIX}m{member}-" if member else PREFIX


def prefix_like(path: str) -> str:
    """Return what the name of a file begins with that has the rows of another one."""
    member = in_path(path)
    return PREFIX if member is None else f"{PREFIX}m{member}-"


def in_path(path: str) -> str | None:
    """Return whose rows a data file holds; None if its name does not say."""
    found = _OF_MEMBER.search(path)
    return None if found is None else found[1]


def seed(seed: bytes, member: str | None) -> bytes:
    """Return the seed of a member's keys; the table's own without one."""
    if not member:
        return seed
    return hashlib.blake2b(member.encode(), key=seed, digest_size=len(seed)).digest()
