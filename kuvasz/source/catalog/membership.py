"""By which catalog rows a publication has published a table, so that it is seen whether it did so all the time.

A table that is taken out of a publication and put in again looks as it did before, and what changed in between is in
no stream. But each clause that names a table is a row of its own with an OID of its own (manual, sections 53.41
"pg_publication_rel" and 53.40 "pg_publication_namespace"), and what a publication sends is in its own row, which
another transaction writes when it is altered. So whoever finds the same rows knows that nothing was left out.

A server that went on from an earlier place, on a timeline of its own, gives the numbers of rows that it lacks to
others. Rows from before a table was copied are of the past that its position is of. One that came later is kept
with a mark, the timeline and LSN where it was seen: it counts on that timeline, and once the position has passed it.

A partition is published as itself only while none of its ancestors is: else its changes come as those of the topmost
published one (manual, "CREATE PUBLICATION", ``publish_via_partition_root``), whichever publication of the stream has
it. What it is a partition of stands in rows of their own as well (section 53.26 "pg_inherits").

A row filter that kuvasz made begins with a mark, which says by which condition, and by which columns, rows are sent.
Any other one proves nothing.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self

from kuvasz import lsn
from kuvasz.source import failure
from kuvasz.source.conninfo import place

if TYPE_CHECKING:
    import psycopg

#: Stands before the mark of a row.
_MARK = " @ "

#: The first version that publishes schemas, and has row filters.
_SCHEMAS_SINCE = 150000

#: A table that leaves a schema and comes back has another row in pg_depend.
_BY_SCHEMA = """
(SELECT 'schema ' || n.oid || ':' || n.xmin || ':' || coalesce((SELECT min(d.xmin::text) FROM pg_depend d
    WHERE d.classid = 'pg_class'::regclass AND d.objid = t.oid AND d.objsubid = 0
        AND d.refclassid = 'pg_namespace'::regclass), '')
FROM pg_publication_namespace n JOIN pg_class c ON c.oid = t.oid AND c.relnamespace = n.pnnspid
WHERE n.pnpubid = p.oid)
"""

#: What a row filter of kuvasz's begins with: a digest of the condition, and the attnums of the columns it reads.
_MARK_PATTERN = "kuvasz [0-9a-f]+[ 0-9]*"

#: The mark of `r`, a row of pg_publication_rel; empty where it has a row filter of somebody else's, NULL without one.
FILTER_MARK = f"""
CASE WHEN r.prqual IS NOT NULL
    THEN coalesce(substring(pg_get_expr(r.prqual, r.prrelid) FROM '^[(]*''({_MARK_PATTERN})'''), '') END
"""

#: A clause with a row filter publishes some of the rows, and beside that of the schema all: it proves nothing, but
#: where it is kuvasz's.
_IS_KNOWN = f"AND ({FILTER_MARK}) IS DISTINCT FROM ''"

_MARK_OF_TABLE = f"(SELECT {FILTER_MARK} FROM pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = t.oid)"

_LINKS = """
(SELECT array_agg('in ' || i.inhrelid || ':' || i.inhparent || ':' || i.xmin)
FROM pg_partition_ancestors(t.oid) AS a (relid) JOIN pg_inherits i ON i.inhrelid = a.relid)
"""

_ABOVE = """
(SELECT array_agg('above ' || q.oid || ':' || c.oid)
FROM pg_partition_ancestors(t.oid) AS a (relid) JOIN pg_class c ON c.oid = a.relid AND c.oid <> t.oid
JOIN pg_publication q ON q.pubname = ANY(%s::text[]) AND q.pubviaroot
WHERE q.puballtables OR EXISTS (SELECT FROM pg_publication_rel r WHERE r.prpubid = q.oid AND r.prrelid = c.oid)
    OR {in_schema})
"""

_IN_SCHEMA = """
EXISTS (SELECT FROM pg_publication_namespace n WHERE n.pnpubid = q.oid AND n.pnnspid = c.relnamespace)
"""

_ROWS = f"""
SELECT t.oid::bigint, p.oid || ':' || p.xmin, array_remove(ARRAY[
    CASE WHEN p.puballtables THEN 'all' END,
    (SELECT 'table ' || r.oid || ':' || r.xmin FROM pg_publication_rel r
     WHERE r.prpubid = p.oid AND r.prrelid = t.oid {{is_known}}),
    {{by_schema}}], NULL), coalesce({_LINKS}, '{{{{}}}}'), coalesce({_ABOVE}, '{{{{}}}}'),
    coalesce({{row_filter}}, '')
FROM pg_publication p CROSS JOIN unnest(%s::oid[]) AS t (oid) WHERE p.pubname = %s
"""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """The catalog rows by which a publication publishes one table."""

    publication: str  #: its own row: OID and transaction
    clauses: frozenset[str]  #: rows that name the table or its schema; of an earlier look perhaps with a mark
    links: frozenset[str] = frozenset()  #: rows that make it a partition, up to the root
    above: frozenset[str] = frozenset()  #: by what an ancestor is published, so that the table is not as itself
    row_filter: str = dataclasses.field(default="", compare=False)  #: the mark of kuvasz's own; not rendered

    def goes_on_from(self, earlier: Self) -> bool:
        """Return whether the table was published alike at each moment since an earlier look."""
        is_itself = not self.above and not earlier.above and self.links == earlier.links
        is_alike = self.publication == earlier.publication and not self.clauses.isdisjoint(
            map(_bare, earlier.clauses)
        )
        return is_itself and is_alike

    def proved(self, timeline: int, position_lsn: int) -> Self:
        """Return what an earlier look proves now.

        Args:
            timeline: The timeline of the source now.
            position_lsn: The table's position.
        """
        clauses = set()
        for clause in self.clauses:
            row, _, mark = clause.partition(_MARK)
            of, _, seen = mark.partition(" ")
            if not mark or lsn.parse(seen) <= position_lsn:
                clauses.add(row)
            elif int(of) == timeline:
                clauses.add(clause)
        return dataclasses.replace(self, clauses=frozenset(clauses))

    def beside(self, earlier: Self, timeline: int, end: int) -> Self:
        """Return what is to be known from now on: rows that are left of an earlier look, and new ones with a mark.

        Args:
            earlier: What was known.
            timeline: The timeline of the source now.
            end: Where its WAL ended after the look.
        """
        left = {clause for clause in earlier.clauses if _bare(clause) in self.clauses}
        new = {f"{row}{_MARK}{timeline} {lsn.render(end)}" for row in self.clauses - set(map(_bare, left))}
        return dataclasses.replace(self, clauses=frozenset(left | new))

    def render(self) -> str:
        """Return what `parse` reads."""
        return ", ".join((self.publication, *sorted(self.clauses), *sorted(self.links), *sorted(self.above)))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return what was rendered."""
        publication, *rows = text.split(", ")
        links, above = (frozenset(row for row in rows if row.startswith(word)) for word in ("in ", "above "))
        return cls(publication=publication, clauses=frozenset(rows) - links - above, links=links, above=above)


def _bare(clause: str) -> str:
    return clause.partition(_MARK)[0]


def marked(condition: str, columns: Collection[int]) -> str:
    """Return a condition as a row filter of kuvasz's: its mark stands before it.

    Args:
        condition: PostgreSQL's text of it.
        columns: The attnums of what it reads: a name may become another column's.
    """
    numbers = "".join(f" {number}" for number in sorted(columns))
    mark = f"kuvasz {hashlib.sha256(f'{condition}{numbers}'.encode()).hexdigest()[:16]}{numbers}"
    return f"'{mark}'::text IS NOT NULL AND {condition}"


def mark_of(row_filter: str) -> str:
    """Return the mark of a row filter of kuvasz's; empty if there is no row filter."""
    found = re.match(f"'({_MARK_PATTERN})'", row_filter)
    return "" if found is None else found[1]


def columns_of(mark: str) -> frozenset[int]:
    """Return the attnums of the columns that a row filter reads, by its mark."""
    return frozenset(map(int, mark.split()[2:]))


def load(
    connection: psycopg.Connection[Any], publication: str, oids: Collection[int], beside: Iterable[str] = ()
) -> Mapping[int, Membership]:
    """Return how a publication publishes tables now, by their OIDs; one that it does not publish is left out.

    Args:
        connection: To the source.
        publication: Its name.
        oids: The OIDs of the tables.
        beside: What other publications the stream may name.

    Raises:
        SourceError: The query failed.
    """
    has_schemas = connection.info.server_version >= _SCHEMAS_SINCE
    query = _ROWS.format(
        by_schema=_BY_SCHEMA if has_schemas else "NULL",
        in_schema=_IN_SCHEMA if has_schemas else "false",
        is_known=_IS_KNOWN if has_schemas else "",
        row_filter=_MARK_OF_TABLE if has_schemas else "NULL",
    )
    with failure.translated(place(connection), f"read publication {publication}"):
        values = [publication, *beside], list(oids), publication
        rows = connection.execute(query, values).fetchall() if oids else []
    return {
        oid: Membership(
            publication=row, clauses=frozenset(found), links=frozenset(links), above=frozenset(above),
            row_filter=row_filter,
        )
        for oid, row, found, links, above, row_filter in rows
        if found
    }  # fmt: skip


__all__ = ["FILTER_MARK", "Membership", "columns_of", "load", "mark_of", "marked"]
