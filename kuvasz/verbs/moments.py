"""Moments of sources, as people give them to verbs: a time by the sources' own clocks, or an LSN of a source."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kuvasz import lsn
from kuvasz.errors import ConfigError

if TYPE_CHECKING:
    from kuvasz.config.sources import Source

#: Sources that are told one by one.
_MOST_TOLD = 4

#: Of the years 1 and 9999.
_FIRST_S, _LAST_S = -62_135_596_800.0, 253_402_300_799.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A time, or an LSN of each of some sources."""

    through: float | None = None  #: unix seconds, by the sources' clocks; None: the LSNs count
    lsns: Mapping[str, int] = dataclasses.field(default_factory=dict)  #: source -> LSN

    def concerns(self, source: str) -> bool:
        """Whether the moment is one of a source."""
        return self.through is not None or source in self.lsns

    def describe(self) -> str:
        """Return it in words."""
        if self.through is not None:
            return f"everything through {text_of(self.through)}"
        if len(self.lsns) > _MOST_TOLD:
            return f"everything before an LSN of each of {len(self.lsns)} sources"
        return "everything before " + ", ".join(f"{name}:{lsn.render(at)}" for name, at in self.lsns.items())


def given(sources: Sequence[Source], time: str | None, lsns: Sequence[str], option: str) -> Moment:
    """Return the moment that a person gave.

    Args:
        sources: The sources that are meant.
        time: As ISO 8601 has it, in UTC unless it says otherwise.
        lsns: Each ``sid:X/X``; of an only source the LSN alone will do.
        option: The option that the time was given with.

    Raises:
        ConfigError: There are both or none, or one is not what it should be.
    """
    if (time is None) == (not lsns):
        raise ConfigError(f"{option} and --lsn: which of the two?", hint="a time is of all sources, an LSN of one")
    return (
        Moment(lsns=dict(_lsn(one, sources) for one in lsns)) if time is None else Moment(through=_time(time, option))
    )


def _time(text: str, option: str) -> float:
    try:
        at = datetime.datetime.fromisoformat(text)
    except ValueError as error:
        hint = f"write {option} '2026-11-22 10:00' for UTC, or with an offset: '2026-11-22 10:00+01:00'"
        raise ConfigError(f"{option} {text}: not a time", hint=hint) from error
    unix_s = (at if at.tzinfo else at.replace(tzinfo=datetime.UTC)).timestamp()
    return min(max(unix_s, _FIRST_S), _LAST_S)  # an offset leads beyond them, and so does the last microsecond


def _lsn(text: str, sources: Sequence[Source]) -> tuple[str, int]:
    sid, _, digits = text.rpartition(":")
    try:
        at = lsn.parse(digits)
    except ValueError as error:
        raise ConfigError(f"--lsn {text}: not an LSN", hint="write --lsn eu:0/16B3748") from error
    found = [one.name for one in sources if sid in {one.sid, one.name} or (not sid and len(sources) == 1)]
    if len(found) != 1:
        known = ", ".join(one.sid or one.name for one in sources)
        raise ConfigError(f"--lsn {text}: of which source?", hint=f"write it before a colon; there are {known}")
    return found[0], at


def text_of(unix_s: float) -> str:
    """Return a time as people read it, in UTC; one that is beyond all calendars shows their first or last."""
    unix_s = min(max(unix_s, _FIRST_S), _LAST_S)
    return datetime.datetime.fromtimestamp(unix_s, datetime.UTC).isoformat(sep=" ", timespec="milliseconds")


__all__ = ["Moment", "given", "text_of"]
