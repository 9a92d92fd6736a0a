"""What a test's lake has of the rows that did not fit."""

from __future__ import annotations

from typing import Any

from tests.support import oracle
from tests.support.lake import LakeFolder


def rejects(lake: LakeFolder) -> list[dict[str, Any]]:
    """Return the rows of the table about them, in the order of their changes; some may be there twice."""
    table = oracle.open_catalog(lake.pyiceberg, catalog=lake.catalog).load_table("_kuvasz.rejects")
    return table.scan().to_arrow().sort_by([("lsn", "ascending"), ("ordinal", "ascending")]).to_pylist()
