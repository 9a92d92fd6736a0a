"""Where new data files go, and what their names say of the rows in them.

Iceberg knows of which commit a file is. Which of several files of one commit is the older one, and whether the rows
of a file are in the order in which they came, only its name says.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence

from kuvasz.lake.format import member

#: Names of files whose rows are in the order in which they came, with the file's own among those of its commit, and
#: of those that a copy made, in which each key is there once.
_ORDERED = re.compile(r"/kvsz-(?:m[0-9]+-)?([0-9a-f]{12})-[0-9a-f]{32}(?:-[0-9]+)*\.parquet$")
_COPIED = re.compile(r"/kvsz-(?:m[0-9]+-)?[0-9a-f]{32}-[0-9]+(-[0-9]+)?\.parquet$")


def fresh(location: str, source: str, order: int = 0) -> str:
    """Return the path of a new data file of a table; of files of one commit, those of a lower order are older."""
    return _path(location, member.prefix(source), order)


def another(path: str) -> str:
    """Return another path for the rows of a new data file, as old as they are."""
    return f"{path.rpartition('-')[0]}-{uuid.uuid4().hex}.parquet"


def of_copy(location: str, source: str) -> str:
    """Return the path of files that a copy makes, for `str.format` with what each has as a number of its own."""
    folder = location.replace("{", "{{").replace("}", "}}")  # names of tables may have them
    return f"{folder}/data/{member.prefix(source)}{uuid.uuid4().hex}-{{}}.parquet"


def merged(location: str, others: Sequence[str], *, is_ordered: bool) -> str:
    """Return the path of a file that takes the rows of others.

    If these are given oldest first and the rows of each are in order, its name says so, and where among the files
    of the newest one's commit it stands: it has to get that one's sequence.
    """
    prefix = member.prefix_like(others[-1])
    if is_ordered and all(tells_newest(other) for other in others):
        newest_one = _ORDERED.search(others[-1])
        return _path(location, prefix, int(newest_one[1], 16) if newest_one else 0)
    return f"{location}/data/{prefix}{uuid.uuid4().hex}.parquet"


def _path(location: str, prefix: str, order: int) -> str:
    return f"{location}/data/{prefix}{order:012x}-{uuid.uuid4().hex}.parquet"


def tells_newest(path: str) -> bool:
    """Whether the rows of a file are in the order in which they came, or each key is there once."""
    return _ORDERED.search(path) is not None or is_copied(path)


def is_streamed(path: str) -> bool:
    """Whether the stream brought the rows of a clone's file; those of copies and merged files have other names."""
    return _ORDERED.search(path) is not None


def is_copied(path: str) -> bool:
    """Whether a copy made the file, so that each key is there once."""
    return _COPIED.search(path) is not None
