"""Which table is compared next, and when: a part of the time, and of the day. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kuvasz.config import kinds, names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kuvasz.state.ports import TableKey
    from kuvasz.state.verdicts.verdict import Verdict

_DAY_S: Final = 86_400.0
_MINUTE_S: Final = 60.0

#: After an attempt that came to no end; sooner where all tables are compared more often.
_AGAIN_S: Final = 3600.0


def next_due(
    tables: Iterable[TableKey], verdicts: Mapping[TableKey, Verdict], every_s: float, now: float
) -> TableKey | None:
    """Return the table that is due longest; None: none is.

    Where an attempt has just come to no end, the other tables of its source wait as long as that one: a server that
    is silent takes a minute of everybody's time, and is asked once for all of them.

    Args:
        tables: Whatever can be compared now.
        verdicts: What earlier comparisons found.
        every_s: For how long one may go without.
        now: Unix seconds.
    """
    again_s = min(every_s, _AGAIN_S)
    silent = {
        names.source_of(source)
        for (_, source), last in verdicts.items()
        if last.is_failing and last.tried_at + again_s > now
    }

    def due(key: TableKey) -> float:
        last = verdicts.get(key)
        if last is None:
            return 0.0
        return last.tried_at + again_s if last.is_failing else max(last.at, last.tried_at) + every_s

    found = min(((due(key), key) for key in tables if names.source_of(key[1]) not in silent), default=None)
    return None if found is None or found[0] > now else found[1]


def pause_s(took_s: float, share: int) -> float:
    """Return for how long nothing is compared behind a comparison.

    Args:
        took_s: What that took.
        share: The part of the time in percent, more than 0, in which something may be compared.
    """
    return took_s * (100 / share - 1)


def is_between(times: str | None, now: float) -> bool:
    """Whether a time of the day, in UTC, lies between two; the second may be the next day's.

    Args:
        times: See `kuvasz.config.kinds.day_times`; None: any time does.
        now: Unix seconds.
    """
    if times is None:
        return True
    begin, end = kinds.day_times(times)
    at = now % _DAY_S / _MINUTE_S
    return begin <= at < end if begin < end else at >= begin or at < end


__all__ = ["is_between", "next_due", "pause_s"]
