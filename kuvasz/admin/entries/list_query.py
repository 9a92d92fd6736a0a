"""What a list is asked for: the order, the part and the choice of its records, as React-admin asks. Pure.

``sort=["name","ASC"]``, ``range=[0,24]``, ``filter={"db_id":1}`` or ``{"id":[1,2]}``: each is JSON in a parameter.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, TypeAlias

from kuvasz.admin.api.refusal import RequestRefused

#: An entry as JSON has it.
Record: TypeAlias = dict[str, Any]

_SORT: Final = 'sort has to be ["field","ASC"] or ["field","DESC"]'
_RANGE: Final = "range has to be [first,last], counted from 0"
_FILTER: Final = 'filter has to be an object: {"field":value}, or {"field":[value,value]} for any of them'


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ListQuery:
    """What of a list is wanted."""

    sort: str | None = None  #: a field; None: the map's order
    is_descending: bool = False
    first: int = 0
    last: int | None = None  #: the last one wanted; None: all that come
    filter: Mapping[str, frozenset[str | None]] = dataclasses.field(default_factory=dict)  #: field -> its values

    @classmethod
    def of(cls, given: Mapping[str, str], fields: Collection[str]) -> ListQuery:
        """Return what the parameters of a request ask for; others than these three say nothing.

        Args:
            given: The parameters.
            fields: The fields by which a list may be sorted and chosen from.

        Raises:
            RequestRefused: One is malformed, or names another field.
        """
        found = cls()
        if "sort" in given:
            found = dataclasses.replace(found, **_sort(_json(given["sort"]), fields))
        if "range" in given:
            found = dataclasses.replace(found, **_range(_json(given["range"])))
        if "filter" in given:
            found = dataclasses.replace(found, filter=_filter(_json(given["filter"]), fields))
        return found

    def chosen(self, records: Sequence[Record]) -> tuple[list[Record], int]:
        """Return the records that are wanted, and how many there would be without a range."""
        found = [one for one in records if all(_text(one[field]) in among for field, among in self.filter.items())]
        if self.sort is not None:
            field = self.sort
            found.sort(key=lambda one: (one[field] is not None, one[field]), reverse=self.is_descending)
        return found[self.first : None if self.last is None else self.last + 1], len(found)


def _sort(given: object, fields: Collection[str]) -> dict[str, Any]:
    match given:
        case [str(field), str(order)] if order.upper() in {"ASC", "DESC"}:
            _refuse_unknown(field, fields)
            return {"sort": field, "is_descending": order.upper() == "DESC"}
    raise RequestRefused(400, _SORT, _known(fields))


def _range(given: object) -> dict[str, Any]:
    match given:
        case [int(first), int(last)] if 0 <= first <= last + 1 and not {type(first), type(last)} & {bool}:
            return {"first": first, "last": last}
    raise RequestRefused(400, _RANGE, "as in [0,24] for the first 25")


def _filter(given: object, fields: Collection[str]) -> dict[str, frozenset[str | None]]:
    if not isinstance(given, dict):
        raise RequestRefused(400, _FILTER, _known(fields))
    found = {}
    for field, wanted in given.items():
        _refuse_unknown(field, fields)
        found[field] = frozenset(_text(one) for one in (wanted if isinstance(wanted, list) else [wanted]))
    return found


def _json(text: str) -> object:
    """Return the value of a parameter; nothing that fits anywhere if it is no JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _text(value: object) -> str | None:
    """Return a value as it is compared: forms send numbers as texts."""
    return value if isinstance(value, str) or value is None else json.dumps(value)


def _refuse_unknown(field: str, fields: Collection[str]) -> None:
    if field not in fields:
        raise RequestRefused(400, f"the list has no field {field!r} to sort by or choose from", _known(fields))


def _known(fields: Collection[str]) -> str:
    return f"its fields are {', '.join(fields)}"


__all__ = ["ListQuery", "Record"]
