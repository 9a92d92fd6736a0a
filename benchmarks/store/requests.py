"""What a store was asked for, commit by commit: how many requests of which kind, and which wait for others."""

from __future__ import annotations

import collections
import dataclasses
import enum
import json
import re
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

#: Dollars for a thousand requests: S3 Standard, us-east-1, November 2026. DELETE is free.
_DEAR, _CHEAP = 0.005, 0.0004

#: Seconds of a month of 30 days.
MONTH_S = 30 * 24 * 3600


class Kind(enum.StrEnum):
    """What is asked for."""

    PUT = "PUT"
    POST = "POST"  #: begin or end of an upload in parts
    GET = "GET"
    HEAD = "HEAD"
    LIST = "LIST"
    DELETE = "DELETE"  #: of one object or of many


#: What one request costs.
PRICES: Mapping[Kind, float] = {
    Kind.PUT: _DEAR / 1000,
    Kind.POST: _DEAR / 1000,
    Kind.LIST: _DEAR / 1000,
    Kind.GET: _CHEAP / 1000,
    Kind.HEAD: _CHEAP / 1000,
    Kind.DELETE: 0.0,
}

_OBJECT = re.compile(r"(?P<table>.+)/(?P<folder>data|metadata)/[^/]+$")

#: (ending or part of a name, what the object is)
_PARTS = (
    (".metadata.json", "metadata"),
    ("snap-", "list"),
    (".avro", "manifest"),
    (".puffin", "deletes"),
    ("-deletes.parquet", "deletes"),
    (".parquet", "data"),
)


#: What is written when the rows are there already.
_OF_A_COMMIT = frozenset({"manifest", "list", "metadata"})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request. Times are epoch seconds."""

    at: float  #: it had come as a whole
    until: float  #: it was answered
    kind: Kind
    key: str  #: of the object, without its bucket
    sent: int  #: bytes
    received: int
    connection: int

    @property
    def table(self) -> str:
        """The folder of the table; empty for what is no table's."""
        found = _OBJECT.match(self.key)
        return found["table"] if found else ""

    @property
    def part(self) -> str:
        """What the object is of a table."""
        name = self.key.rpartition("/")[2]
        return next((part for mark, part in _PARTS if mark in name), "other")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StoreCommit:
    """All that one table asked of the store from one commit to the next.

    Rows of the next commit may be written meanwhile: those are the next one's.
    """

    requests: Sequence[Request]  #: as they were answered; the last one wrote the metadata

    @property
    def way(self) -> Sequence[Request]:
        """The requests from the first that writes rows until the metadata is there."""
        begin = min(one.at for one in self.requests if one.kind in {Kind.PUT, Kind.POST})
        return [one for one in self.requests if one.at >= begin]

    @property
    def chain(self) -> int:
        """How many requests on the way wait for each other at most, the catalog not counted."""
        count, end = 0, 0.0
        for one in sorted(self.way, key=lambda one: one.until):
            if one.at >= end:
                count, end = count + 1, one.until
        return count

    @property
    def seconds(self) -> float:
        """How long the way takes."""
        return self.requests[-1].until - min(one.at for one in self.way)

    @property
    def shape(self) -> str:
        """The way in words: what is asked for at the same time stands in brackets."""
        groups: list[tuple[float, list[str]]] = []
        for one in sorted(self.way, key=lambda one: one.at):
            name = f"{one.kind} {one.part}"
            if groups and one.at < groups[-1][0]:
                groups[-1] = (min(groups[-1][0], one.until), [*groups[-1][1], name])
            else:
                groups.append((one.until, [name]))
        return " > ".join(f"[{', '.join(sorted(names))}]" if len(names) > 1 else names[0] for _, names in groups)


def parse(line: str) -> Request:
    """Return a request as the proxy noted it."""
    note = json.loads(line)
    target = urlsplit(note["target"])
    key = unquote(target.path).strip("/").partition("/")[2]
    return Request(
        at=note["at"],
        until=note["until"],
        kind=_kind(note["method"], key, parse_qs(target.query, keep_blank_values=True)),
        key=key,
        sent=note["sent"],
        received=note["received"],
        connection=note["connection"],
    )


def _kind(method: str, key: str, query: Mapping[str, object]) -> Kind:
    if method == "POST" and "delete" in query:
        return Kind.DELETE
    if method == "GET" and not key:
        return Kind.LIST
    return Kind(method)


def commits(requests: Iterable[Request]) -> list[StoreCommit]:
    """Return the commits of all tables that requests were made for."""
    found = []
    of_tables: dict[str, list[Request]] = collections.defaultdict(list)
    for request in sorted(requests, key=lambda one: one.until):
        if not request.table:
            continue
        mine = of_tables[request.table]
        mine.append(request)
        if request.kind is Kind.PUT and request.part == "metadata":
            begin = min((one.at for one in mine if one.part in _OF_A_COMMIT), default=request.at)
            of_the_next = [one for one in mine if one.part == "data" and one.at > begin]
            found.append(StoreCommit(requests=[one for one in mine if one not in of_the_next]))
            of_tables[request.table] = of_the_next
    return found


def counts(requests: Iterable[Request]) -> dict[Kind, int]:
    """Return how many requests of each kind there are."""
    found = collections.Counter(request.kind for request in requests)
    return {kind: found[kind] for kind in Kind}


def price(requests: Iterable[Request]) -> float:
    """Return what requests cost, in dollars."""
    return sum(PRICES[request.kind] for request in requests)
