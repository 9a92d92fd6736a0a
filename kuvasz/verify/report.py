"""What `kuvasz verify` found of one table of one source. Pure."""

from __future__ import annotations

import dataclasses

#: Differing keys that are shown with their values.
SHOWN = 100


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DifferingKey:
    """One key that differs, for people."""

    kind: str  #: missing, extra, changed, doubled; of a history's versions overlap, gap, broken
    key: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What came of one table of one source.

    Large because it is a line of the output: each field is a key of the JSON that `kuvasz verify` prints.
    """

    source: str
    table: str
    target: str
    is_member: bool = False  #: one of several tables of the source that are one target
    compared: str = ""  #: what was: it depends on the table's type what can be
    lsn: str = ""  #: of the source, at which the two were compared
    source_rows: int = 0
    lake_rows: int = 0
    key: tuple[str, ...] = ()  #: the columns by which rows are named: all of them where there is no key
    missing: int = 0
    extra: int = 0
    changed: int = 0
    doubled: int = 0
    faults: int = 0  #: keys of a history whose versions do not fit together
    waiting: int = 0  #: keys whose changes a stopped kuvasz has not applied yet: no differences
    undecided: int = 0
    rejected: int = 0  #: rows of the source that do not fit the table, and are no differences
    mended: int = 0
    left: int = 0  #: keys that differ still
    why_left: str = ""  #: what keeps them from being mended, and what a person can do
    gaps: int = 0  #: that are recorded of the source: changes that no stream brings any more
    keys: tuple[DifferingKey, ...] = ()  #: some of them
    seconds: float = 0.0
    skipped: str = ""  #: why it was not compared
    error: str = ""
    hint: str | None = None
    error_code: int = 0  #: of the error, or of a table that is still to come; 0 for one that the map leaves out

    @property
    def differences(self) -> int:
        """How many keys differ."""
        return self.missing + self.extra + self.changed + self.doubled + self.faults


__all__ = ["SHOWN", "DifferingKey", "Report"]
