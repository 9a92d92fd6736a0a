"""What the pre-flight found: one line of ``kuvasz check``."""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING

from kuvasz.errors import KuvaszError, mend_of
from kuvasz.source import failure

if TYPE_CHECKING:
    from collections.abc import Callable

    from kuvasz.model import TableName


class Severity(enum.Enum):
    """What a finding that is not ok means."""

    REQUIRED = "required"  #: the source, or the table, cannot be replicated
    ADVICE = "advice"  #: it can, but not as well


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One check of one source or table, passed or not."""

    source: str  #: the name of its slot and publication
    check: str  #: "wal_level", "publication", …; bounded, the same on every source
    value: str  #: what was found
    needed: str  #: what is asked for
    ok: bool
    severity: Severity = Severity.REQUIRED
    fix: str = ""  #: the SQL that mends it, or what to do where no SQL can
    table: TableName | None = None

    @property
    def is_blocking(self) -> bool:
        """Whether it keeps the source, or the table, from being replicated."""
        return not self.ok and self.severity is Severity.REQUIRED


class PreflightReport:
    """Collects the findings of one source; a check that fails in itself becomes a finding too.

    Attributes:
        source: The name of its slot and publication.
        location: Where it is, without secrets.
        findings: In the order of the checks.
    """

    def __init__(self, source: str, location: str) -> None:
        self.source = source
        self.location = location
        self.findings: list[Finding] = []

    def add(
        self,
        check: str,
        value: str,
        needed: str,
        *,
        ok: bool,
        severity: Severity = Severity.REQUIRED,
        fix: str = "",
        table: TableName | None = None,
    ) -> None:
        """Add one finding; `fix` is kept only of one that is not ok."""
        finding = Finding(
            source=self.source, check=check, value=value, needed=needed, ok=ok, severity=severity,
            fix="" if ok else fix, table=table,
        )  # fmt: skip
        self.findings.append(finding)

    def run(self, check: str, needed: str, body: Callable[[], None]) -> None:
        """Carry out one check; what it raises is a finding, and the next check has its turn."""
        try:
            with failure.contained(self.location), failure.translated(self.location, f"check {check}"):
                body()
        except KuvaszError as error:
            self.add(check, error.message, needed, ok=False, fix=mend_of(error))
