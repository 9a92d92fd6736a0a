"""How a table is cut into ranges for the copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kuvasz.ports import SMALL_COPY_BYTES
from kuvasz.source.snapshot import CopyRange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kuvasz.model import TableName
    from kuvasz.source.catalog.table import SourceTable
    from kuvasz.source.snapshot import Sessions

_PAGE_BYTES = 8192

#: Bytes at the source above which a table is large: what is less is read in seconds.
LARGE_BYTES = 64 << 20


def plan_ranges(
    pages: int, toast_bytes: int, target_bytes: int, *, page_bytes: int = _PAGE_BYTES
) -> list[tuple[int, int | None]]:
    """Cut a table's heap into spans of about `target_bytes`, what hangs on them in TOAST included.

    Args:
        pages: The pages of the main fork.
        toast_bytes: Taken as spread evenly over the pages.
        target_bytes: Size of a span; more than 0.
        page_bytes: The bytes of one page.

    Returns:
        (first block, end block) of adjoining spans, the end exclusive. The last is open-ended: pages may have been
        added since, and it is the snapshot that decides which rows are seen. At least one span, even of no page.

    Raises:
        ValueError: A size is negative, or `target_bytes` or `page_bytes` is not positive.
    """
    if pages < 0 or toast_bytes < 0 or target_bytes <= 0 or page_bytes <= 0:
        msg = f"no sizes: {pages=} {toast_bytes=} {target_bytes=} {page_bytes=}"
        raise ValueError(msg)
    size_bytes = pages * page_bytes + toast_bytes
    count = max(1, min(pages, -(-size_bytes // target_bytes)))
    starts = [pages * number // count for number in range(count)]
    return list(zip(starts, [*starts[1:], None], strict=True))


def is_small(table: SourceTable) -> bool:
    """Whether a table is one of those of which many are copied at a time: one of unknown size is none."""
    return table.bytes is not None and table.bytes <= SMALL_COPY_BYTES


def is_large(table: SourceTable) -> bool:
    """Whether a table is one of those that are copied in their hours alone: one of unknown size is."""
    return table.bytes is None or table.bytes > LARGE_BYTES


def copy_ranges(
    table: SourceTable,
    *,
    conninfo: str,
    snapshot_name: str,
    target_bytes: int,
    url: Callable[[], str] | None = None,
    where: str = "",
    sessions: Sessions | None = None,
) -> list[CopyRange]:
    """Return the requests that together read all rows of a table, largest first.

    A partitioned table is read leaf by leaf, with the columns in the order of the root.

    Args:
        table: As the catalog had it, with its sizes; best read under the same snapshot.
        conninfo: The conninfo of an ordinary session at the server that exported the snapshot.
        snapshot_name: The exported snapshot.
        target_bytes: Size of a range at the source, more than 0.
        url: Returns the source's url as it is now; see `CopyRange`.
        where: Other rows are left out; see `CopyRange`.
        sessions: In which a range is read that is small; see `CopyRange`.

    Raises:
        ValueError: `target_bytes` is not positive, or a size is not known.
    """
    columns = tuple(column.name for column in table.relation.columns)
    ranges = [
        CopyRange(
            conninfo=conninfo, url=url, snapshot_name=snapshot_name, table=name, columns=columns, where=where,
            sessions=sessions, first_block=first, end_block=end,
            size=_share(first, end, pages, pages * table.page_bytes + toast_bytes),
        )
        for name, pages, toast_bytes in map(_known, _heaps(table))
        for first, end in plan_ranges(pages, toast_bytes, target_bytes, page_bytes=table.page_bytes)
    ]  # fmt: skip
    # Largest first, so that the last to end is a small one; equal ones in order of the file.
    return sorted(ranges, key=lambda part: -part.size)


def _heaps(table: SourceTable) -> Iterable[tuple[TableName, int | None, int | None]]:
    if table.leaves:
        return [(leaf.table, leaf.pages, leaf.toast_bytes) for leaf in table.leaves]
    return [(table.table, table.pages, table.toast_bytes)]


def _known(heap: tuple[TableName, int | None, int | None]) -> tuple[TableName, int, int]:
    name, pages, toast_bytes = heap
    if pages is None or toast_bytes is None:
        msg = f"no sizes: {name}: {pages=} {toast_bytes=}"
        raise ValueError(msg)
    return name, pages, toast_bytes


def _share(first: int, end: int | None, pages: int, size_bytes: int) -> int:
    return size_bytes * ((pages if end is None else end) - first) // pages if pages else size_bytes
