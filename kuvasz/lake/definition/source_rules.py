"""By which rules of the map the rows of a lake table's sources were made."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from kuvasz.errors import SchemaError
from kuvasz.lake.format import gaps, rule
from kuvasz.model import TableType

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kuvasz.lake.jvm.iceberg_table import IcebergTable
    from kuvasz.ports import Feed, Target


class SourceRules:
    """The rules of one table's sources; its lock must be held. See `kuvasz.lake.format.rule`.

    Args:
        table: The Iceberg table, where they stand.
        sources: The sources that have a position in the table.
    """

    def __init__(self, table: IcebergTable, sources: Collection[str]) -> None:
        self._table = table
        self._sources = sources
        self._now: dict[str, str] = {}  #: source -> the map's rule for it

    def noted(self, source: str) -> str | None:
        """Return the rule that a source's rows were made by; None: nobody said."""
        return self._table.properties.get(rule.PREFIX + source)

    def now(self, source: str) -> dict[str, str]:
        """Return the property of a commit by which all rows of a source are made by the map's rule."""
        return {rule.PREFIX + source: self._now[source]} if source in self._now else {}

    def go_by(self, target: Target, feed: Feed, numbers: Mapping[str, int]) -> str:
        """Go by the map's rule for a source; return why its rows have to be copied again.

        Empty if they are as the map says, or not there.

        Args:
            target: As the map has it.
            feed: The source table.
            numbers: As `rule.of`.

        Raises:
            OtherRule: They are others, and of a type that keeps what was.
        """
        now, noted = rule.of(target, numbers, is_own_alone=feed.is_own_alone), self.noted(feed.source)
        is_there = self._keeps_rows(target, feed.source)
        rule_now = rule.beside(noted, now, keeps_rows=target.keeps_rows) if is_there else now
        self._now[feed.source] = sys.intern(rule_now)  # one text for all sources of a fleet
        return rule.why_copy(noted, now, target, feed) if is_there else ""

    def is_mixed(self, source: str) -> bool:
        """Whether a source has rows whose values another rule made than the one that the table goes by now."""
        return rule.is_mixed(self._now.get(source))

    def lacks_rows(self, source: str) -> bool:
        """Whether rows of a source are missing since it was copied: they do not fit, or were lost in a gap."""
        return rule.lacks_rows(self._now.get(source))

    def lack(self, source: str) -> None:
        """Note that rows of a source are missing.

        Raises:
            LakeError: The catalog does not answer.
        """
        noted = self._now.get(source) or self.noted(source)
        if noted is not None and not rule.lacks_rows(self.noted(source)):
            self._now[source] = rule.lacking(noted)
            self._table.set_properties({rule.PREFIX + source: self._now[source]})

    def check(self, target: Target, feed: Feed, numbers: Mapping[str, int]) -> None:
        """Refuse a map by whose rule a source's rows are not made: they would differ by that alone.

        Args:
            target: As the map has it.
            feed: The source table.
            numbers: As `rule.of`.

        Raises:
            SchemaError: They are made by another one.
        """
        noted, now = self.noted(feed.source), rule.of(target, numbers, is_own_alone=feed.is_own_alone)
        if noted is not None and (found := rule.others(noted, now)):
            hint = "go by the map that kuvasz runs with; if it has yet to follow this one, let it do so, then compare"
            raise SchemaError(f"{feed.place}: {rule.told(found)}", hint=hint)

    def remember(self, target: Target, source: str) -> None:
        """Note that what comes of a source from here on is made by the map's rule, whatever was there before."""
        if self._keeps_rows(target, source) and self.noted(source) != self._now[source]:
            self._table.set_properties({rule.PREFIX + source: self._now[source]})

    def _keeps_rows(self, target: Target, source: str) -> bool:
        """Whether rows of a source are there that no copy or comparison is about to make right."""
        if source in self._sources:
            return True
        is_kept = target.type in {TableType.APPEND, TableType.CHANGELOG}  # it goes on with what it has
        return is_kept and gaps.open_one(gaps.parse(self._table.properties, source, target.name)) is not None


__all__ = ["SourceRules"]
