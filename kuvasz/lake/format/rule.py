"""By which rule of the map a source's rows were made, as a table property. Pure.

A property ``kuvasz.rule.<source>`` holds what the map says of values and rows, in at most 50 bytes:
``3f2a9c0.-.77ab01c.19be2d4.error``, that is digests of `filter`, `set`, `mask` and the secret of its pseudonyms,
``-`` for what there is none of, and `out_of_range`; and behind that a digest of the settings of Spark by which
expressions give other values, ``sql``77ab01c, if the map has such, ``own`` where `origin` leaves out of the stream
what came to the source by replication, ``kept`` where a person agreed to rows that another `set` or `mask` made, and
``less`` where a table that keeps all rows lacks some, which do not fit or were lost in a gap.
It comes with the commit of a copy or repair, and is compared with the map before anything else of the source is
applied.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any

from kuvasz.errors import OtherRule, resync_of, retry_of
from kuvasz.model import TableType

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kuvasz.model import Relation
    from kuvasz.ports import Feed, Target

PREFIX = "kuvasz.rule."

#: What the parts of a rule are called in the map.
_OPTIONS = ("filter", "set", "mask", "pipeline.mask_secret", "out_of_range")

#: Stands behind them where rows may be missing that came by replication.
_OWN = "own"

#: Stands behind them where rows are there whose values another rule made.
_KEPT = "kept"

#: Stands behind them where rows are missing, so that the newest of a key need not be the last one.
_LESS = "less"

#: Begins what stands behind them where the map's settings of Spark give expressions another meaning.
_DIALECT = "sql"

#: What these are called in the map.
_SPARK = "spark.conf"

#: What makes other values of what a source has.
_OF_VALUES = frozenset({"set", "mask", "pipeline.mask_secret", _SPARK})

_NONE = "-"

#: Of a digest: 28 bits tell a change from none, and say little of what was digested.
_DIGITS = 7

#: Comments, quoted texts and names as Spark SQL has them, words, and single signs; white space is in between.
_TOKEN = re.compile(
    r"(?P<comment>--[^\n]*|/\*.*?\*/)|[rR]'[^']*'|[rR]\"[^\"]*\"|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|\w+|\S",
    re.DOTALL,
)


def of(target: Target, numbers: Mapping[str, int], *, is_own_alone: bool = False) -> str:
    """Return the rule of a target as the map has it; order and white space in the map make no other one.

    Args:
        target: As the map has it.
        numbers: See `numbered`: a column that the map names as it is called now is the one that it was.
        is_own_alone: As `Feed.is_own_alone`.
    """
    by_name = {name.lower(): f"#{number}" for name, number in numbers.items()}
    has_pseudonyms = any(method != "redact" for method in target.mask.values())
    mask = sorted((by_name.get(name.lower(), name), method) for name, method in target.mask.items())
    parts = (
        None if target.filter is None else digest(tokens(target.filter, by_name)),
        None if target.set is None else digest(_computed(target, target.set, by_name)),
        digest(mask) if mask else None,
        _fingerprint(target.mask_secret) if has_pseudonyms else None,
        target.out_of_range,
    )
    dialect = [f"{_DIALECT}{digest(target.dialect)}"] if target.dialect else []
    return ".".join([*(part or _NONE for part in parts), *dialect, *([_OWN] if is_own_alone else [])])


def _fingerprint(secret: bytes) -> str:
    from kuvasz.modes import veil  # and the decoder with it, which who only looks does without

    return veil.fingerprint(secret)


def numbered(target: Target, relation: Relation, reads: Collection[int]) -> dict[str, int]:
    """Return the columns that a rule names: name -> number.

    Args:
        target: As the map has it.
        relation: From the catalog; without numbers nothing is returned.
        reads: Numbers of the columns that the expressions look at.
    """
    masked = () if target.set is not None else target.mask
    return {
        column.name: column.attnum
        for column in relation.columns
        if column.attnum and (column.attnum in reads or column.name in masked)
    }


def _computed(target: Target, columns: Mapping[str, str], by_name: Mapping[str, str]) -> list[Any]:
    """Return what `set` computes, and the types it computes from; elsewhere another type exchanges its column."""
    texts = sorted((name, tokens(text, by_name)) for name, text in columns.items())
    named = ((by_name.get(name.lower(), "" if by_name else name), kind) for name, kind in target.types.items())
    return [texts, sorted(one for one in named if one[0])]


def tokens(expression: str, by_name: Mapping[str, str]) -> list[str]:
    """Return what an expression is made of, without comments and the white space in between.

    Args:
        expression: Spark SQL.
        by_name: Name of a column in lower case -> what it is called here.
    """
    found = [one.group() for one in _TOKEN.finditer(expression) if one.lastgroup != "comment"]
    return [by_name.get(token.strip("`").lower(), token) for token in found]


def digest(facts: Any) -> str:  # noqa: ANN401 (JSON)
    """Return the digest of a part of a rule."""
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:_DIGITS]


def others(noted: str, now: str) -> tuple[str, ...]:
    """Return the options by which rows would be other ones than those that are there.

    Args:
        noted: The rule of the rows that are there; all is another one if it cannot be read.
        now: The rule of the map.
    """
    before, behind = _taken_apart(noted)
    after, wanted = _taken_apart(now)
    if len(before) != len(after) or not behind - _dialect(behind) <= {_OWN, _KEPT, _LESS}:
        return _OPTIONS
    found = [name for name, one, other in zip(_OPTIONS, before, after, strict=True) if one != other]
    if before[-1] == "error" and _OPTIONS[-1] in found:
        found.remove(_OPTIONS[-1])  # no value was out of range, or the table had stopped
    if "mask" in found and "pipeline.mask_secret" in found:
        found.remove("pipeline.mask_secret")  # it is asked for, or no longer
    if _dialect(behind) != _dialect(wanted):
        found.append(_SPARK)
    if _OWN in behind - wanted:
        found.append("origin")  # the other way round no row that is there is too many
    return tuple(found)


def _taken_apart(rule: str) -> tuple[list[str], set[str]]:
    """Return what a rule has of each option, and what stands behind that."""
    parts = rule.split(".")
    return parts[: len(_OPTIONS)], set(parts[len(_OPTIONS) :])


def _dialect(behind: set[str]) -> set[str]:
    return {one for one in behind if one.startswith(_DIALECT)}


def beside(noted: str | None, now: str, *, keeps_rows: bool) -> str:
    """Return what is to be noted of a rule whose rows come beside those that are there.

    Args:
        noted: The rule of the rows that are there.
        now: The rule of the map.
        keeps_rows: A person agreed to them.
    """
    if noted is None:
        return now
    found = [now]
    if is_mixed(noted) or (keeps_rows and _OF_VALUES.intersection(others(noted, now))):
        found.append(_KEPT)
    if lacks_rows(noted):
        found.append(_LESS)
    return ".".join(found)


def lacking(noted: str) -> str:
    """Return what is to be noted of a rule where rows are missing from now on."""
    return noted if lacks_rows(noted) else f"{noted}.{_LESS}"


def lacks_rows(noted: str | None) -> bool:
    """Whether rows are missing."""
    return noted is not None and _LESS in _taken_apart(noted)[1]


def is_mixed(noted: str | None) -> bool:
    """Whether rows are there whose values another rule made than the map's."""
    return noted is not None and _KEPT in _taken_apart(noted)[1]


def why_copy(noted: str | None, now: str, target: Target, feed: Feed) -> str:
    """Return why a source's rows in a target have to be copied again; empty if they are as the map says.

    Args:
        noted: The rule that they were made by; None: nobody said, and they count as made by today's.
        now: The rule of the map.
        target: As the map has it.
        feed: The source table.

    Raises:
        OtherRule: They are others, and of a type that keeps what was.
    """
    found = () if noted is None else others(noted, now)
    if not found:
        return ""
    why = told(found)
    if target.type is TableType.CLONE:
        return why
    resync = resync_of(target.name)
    if target.type is TableType.HISTORY:
        hint = f"{resync} ends the versions that are open and differ, and begins new ones; or change the map back"
        raise OtherRule(f"{feed.place}: {why}", hint=hint)
    if target.keeps_rows:
        return ""
    hint = f"{retry_of(target.name)} goes on, and rows that are there stay as they are; {resync} copies it again in"
    raise OtherRule(f"{feed.place}: {why}", hint=f"{hint} place of all rows it has; or change the map back")


def told(options: tuple[str, ...]) -> str:
    """Say that the map has other options than those that rows were made by."""
    named = " and ".join(f"`{name}`" for name in options)
    is_one = len(options) == 1
    than = "is another one than the one" if is_one else "are other ones than those"
    return f"{named} of the map {than} that its rows were made by"


__all__ = [
    "PREFIX",
    "beside",
    "digest",
    "is_mixed",
    "lacking",
    "lacks_rows",
    "numbered",
    "of",
    "others",
    "tokens",
    "told",
    "why_copy",
]
