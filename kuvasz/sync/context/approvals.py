"""What a person has agreed to for tables of one source, by having them tried again."""

from __future__ import annotations

import dataclasses

from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import ChangesLost, ColumnsUnclear, EarlierError, KuvaszError, OtherRule
from kuvasz.ports import Target
from kuvasz.sync.rules.few_keys import FewKeys
from kuvasz.sync.rules.targets import target_of


class Approvals:
    """From any thread.

    Args:
        mask_secret: Key of the pseudonyms.
    """

    def __init__(self, mask_secret: bytes) -> None:
        self._mask_secret = mask_secret
        # By `SourceTableSpec.key`.
        self._approved: FewKeys[str] = FewKeys()  #: those that follow a schema change
        self._accepted: FewKeys[str] = FewKeys()  #: those that go on with a gap
        self._kept: FewKeys[str] = FewKeys()  #: those whose rows stay as another rule of the map made them
        self._ahead: dict[str, str] = {}  #: those answered before their first look -> what was answered
        #: those whose columns are taken as they probably are -> what they are said to be -> up to which LSN
        self._believed: dict[str, dict[str, int]] = {}

    def give(self, key: str, error: KuvaszError | None) -> None:
        """Agree to what keeps a table from going on."""
        self._approved.add(key)
        if isinstance(error, ChangesLost):
            self._accepted.add(key)
        if isinstance(error, OtherRule):
            self._kept.add(key)
        if isinstance(error, ColumnsUnclear) and error.likely:
            self._believed.setdefault(key, {})[error.likely] = error.through
        if isinstance(error, EarlierError):
            self._ahead[key] = error.message

    def give_as_answered(self, key: str, error: KuvaszError) -> bool:
        """Agree to what keeps a table from going on if a person did so before it was seen again; return whether."""
        is_answered = self._ahead.get(key) == error.message
        if is_answered:
            del self._ahead[key]
            self.give(key, error)
        return is_answered

    def target_of(self, spec: SourceTableSpec) -> Target:
        """Return the target of a map entry as the lake wants it now."""
        target = dataclasses.replace(target_of(spec, self._mask_secret), keeps_rows=spec.key in self._kept)
        is_approved = spec.key in self._approved and target.on_schema_change in {"agree", "hold"}
        return dataclasses.replace(target, on_schema_change="evolve") if is_approved else target

    def followed(self, spec: SourceTableSpec) -> None:
        """Take note that the lake has followed a table's changes: the next ones are not agreed to."""
        self._approved.discard(spec.key)
        self._kept.discard(spec.key)

    def is_believed(self, spec: SourceTableSpec, commit_lsn: int, likely: str) -> bool:
        """Whether the columns of a transaction are taken as they probably are where no look proves them.

        Who was told one answer has agreed to that one: other transactions may have another.
        """
        return commit_lsn < self._believed.get(spec.key, {}).get(likely, 0)

    def is_gap_accepted(self, spec: SourceTableSpec) -> bool:
        """Whether a table goes on without what it missed."""
        return spec.key in self._accepted

    def closed(self, spec: SourceTableSpec) -> None:
        """Take note that a gap is closed, or that what it was is copied: the next one is not agreed to."""
        self._accepted.discard(spec.key)


__all__ = ["Approvals"]
