"""Partitions as a look at the catalog finds them."""

from __future__ import annotations

from kuvasz.model import TableName
from kuvasz.source.catalog.partitions import Partition
from kuvasz.sync.rules.partition_memory import KnownPartitions


def partition(oid: int, *, file: int | None = None, xid: int = 7, toast: int = 0) -> Partition:
    name, links = TableName(schema="public", name=f"p {oid}"), f"5:6 {oid}:{xid}"
    return Partition(
        table=name, oid=oid, file=file or oid, file_xid=xid, toast=toast, links=links, xid=str(xid), command=0
    )  # fmt: skip


A, B, C = partition(10), partition(11), partition(12)

KNOWN = KnownPartitions().looked([A, B], 100)
