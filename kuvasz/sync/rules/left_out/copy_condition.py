"""What of a map's filter PostgreSQL can decide by itself, so that other rows stay at the source. Pure.

The filter is Spark's, and Spark looks at each row that comes whatever stands here. So a condition may let rows pass
that the filter drops, but must be true for each row that the filter takes: a row that it holds back is missing in
the lake, and nothing tells. Only comparisons are taken whose outcome is the same in both engines for every value of
the column, NULL included; of an AND, the parts that are so. Left out are therefore, among much else:

- numeric, float, date and time: NaN, infinity and zones differ, and `out_of_range` may make NULL of a value;
- char(n), whose trailing blanks PostgreSQL does not compare;
- the order of texts, which is the database's own. Equality is that of bytes, whatever the column's collation says;
- literals with another character than printable ASCII, or with a quote, a backslash or a dollar sign, which Spark's
  settings may read in more than one way;
- a column to which the map gives another type, domains, and names that differ from others by case alone.

A text that is not understood to its end gives no condition at all.

A row filter of a publication may have less than a copy: no type or collation that is not PostgreSQL's own, and no
cast that goes by text. So a uuid is compared with literals that have its one spelling.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterator

from kuvasz.config.sources import SourceTableSpec
from kuvasz.model import Column, Relation
from kuvasz.source import sql

#: Spaces, then a token; a number or a name that goes on in another way is none.
_TOKEN = re.compile(
    r"""[ \t\r\n]*(?:
    (?P<name>[A-Za-z_][A-Za-z0-9_]*)(?![^\x00-\x7f])
    | `(?P<quoted>[A-Za-z0-9_ ]+)`
    | (?P<number>[0-9]+)(?![\w.])
    | (?P<fraction>[0-9]*\.[0-9]+)(?![\w.])
    | '(?P<text>[ !"#%&(-\[\]-~]*)'
    | (?P<sign><>|!=|==|<=|>=|[=<>(),-])
    )""",
    re.VERBOSE,
)
_END = re.compile(r"[ \t\r\n]*\Z")

#: Words that are no names of columns, unless they stand in backquotes.
_WORDS = frozenset({
    "all", "and", "any", "between", "case", "cast", "current_date", "current_time", "current_timestamp",
    "current_user", "distinct", "escape", "exists", "false", "from", "ilike", "in", "interval", "is", "like",
    "localtime", "localtimestamp", "not", "null", "or", "regexp", "rlike", "session_user", "some", "true", "unknown",
    "user",
})  # fmt: skip

#: Operators by what they are with their sides changed; `==` and `!=` are Spark's.
_TURNED = {"=": "=", "==": "=", "<>": "<>", "!=": "<>", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
_EQUALITY = frozenset({"=", "<>"})

#: Kinds of columns by the OIDs of built-in types.
_KINDS = {16: "bool", 20: "int", 21: "int", 23: "int", 25: "text", 1043: "text", 2950: "text"}

_UUID = 2950
_UUID_TEXT = re.compile("'[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}'")

_MOST = 2**63 - 1
_DEPTH = 50


@dataclasses.dataclass(frozen=True, slots=True)
class _PlainValue:
    kind: str  #: int, text, bool, or something that is compared in no common way
    sql: str


@dataclasses.dataclass(frozen=True, slots=True)
class _QueryPart:
    """A condition of PostgreSQL, for a part of a filter."""

    sql: str
    is_exact: bool  #: it is true, false or NULL where the filter's part is, and not only true where that is true


class _UnclearText(Exception):
    """The text has something that is not taken."""


def copy_condition(spec: SourceTableSpec, relation: Relation) -> str:
    """Return a condition that is true for every row which the filter takes; empty where none is known.

    Args:
        spec: What the map says of the table.
        relation: As the copy reads it.
    """
    return _parsed(spec, relation, None)[0]


def published_condition(
    spec: SourceTableSpec, relation: Relation, readable: Collection[int]
) -> tuple[str, frozenset[int]]:
    """Return such a condition for a row filter, and the attnums of the columns that it may read.

    Args:
        spec: What the map says of the table.
        relation: All of the table.
        readable: The attnums of the columns that it may read at most.
    """
    return _parsed(spec, relation, readable)


def _parsed(
    spec: SourceTableSpec, relation: Relation, readable: Collection[int] | None
) -> tuple[str, frozenset[int]]:
    if spec.config.filter is None:
        return "", frozenset()
    try:
        text = _FilterText(spec.config.filter, relation, frozenset(spec.config.asked_types), readable)
        known = text.parse()
    except _UnclearText:
        return "", frozenset()
    return ("", frozenset()) if known is None else (known.sql, frozenset(text.read))


class _FilterText:
    """Reads the part of Spark's grammar that is taken: conditions over columns and literals.

    A part that is read, but has no counterpart, is None.

    Args:
        text: The filter.
        relation: The table.
        retyped: Names of columns to which the map gives another type.
        readable: The attnums of columns that a row filter may read; None: the condition is a copy's.
    """

    def __init__(
        self, text: str, relation: Relation, retyped: frozenset[str], readable: Collection[int] | None = None
    ) -> None:
        self.read: set[int] = set()  #: attnums of the columns that were found
        self._tokens = list(_tokens(text))
        self._at = 0
        self._relation = relation
        self._retyped = retyped
        self._readable = readable
        #: attnums of columns that are compared as what they are, and not as their texts
        self._native = {one.attnum for one in relation.columns if readable is not None and one.pg_type.oid == _UUID}

    def parse(self) -> _QueryPart | None:
        known = self._either(0)
        if self._at != len(self._tokens):
            raise _UnclearText
        return known

    def _either(self, depth: int) -> _QueryPart | None:
        parts = [self._both(depth)]
        while self._took("or"):
            parts.append(self._both(depth))
        known = [part for part in parts if part is not None]
        return _joined(" OR ", known, is_exact=True) if len(known) == len(parts) else None

    def _both(self, depth: int) -> _QueryPart | None:
        parts = [self._denied(depth)]
        while self._took("and"):
            parts.append(self._denied(depth))
        known = [part for part in parts if part is not None]
        return _joined(" AND ", known, is_exact=len(known) == len(parts)) if known else None

    def _denied(self, depth: int) -> _QueryPart | None:
        if depth > _DEPTH:
            raise _UnclearText
        if self._took("not"):
            inner = self._denied(depth + 1)
            return _QueryPart(f"(NOT {inner.sql})", is_exact=True) if inner is not None and inner.is_exact else None
        if self._took("("):
            inner = self._either(depth + 1)
            self._need(")")
            return inner
        return self._comparison()

    def _comparison(self) -> _QueryPart | None:
        if (literal := self._literal()) is not None:
            if literal.kind == "bool":
                return _QueryPart(literal.sql, is_exact=True)
            operator = self._operator()
            return self._compared(self._column(), _TURNED[operator], [literal])
        column = self._column()
        if self._took("is"):
            return self._state(column)
        is_denied = self._took("not")
        if self._took("in"):
            return self._compared(column, "NOT IN" if is_denied else "IN", self._list())
        if self._took("between"):
            return self._between(column, "NOT BETWEEN" if is_denied else "BETWEEN")
        if is_denied:
            raise _UnclearText
        if self._peek() in _TURNED:
            return self._compared(column, _TURNED[_TURNED[self._operator()]], [self._needed_literal()])
        return None if _kind(column) != "bool" else _QueryPart(self._side(column), is_exact=True)

    def _state(self, column: Column | None) -> _QueryPart | None:
        is_denied = self._took("not")
        word = next((word for word in ("null", "true", "false") if self._took(word)), None)
        if word is None:
            raise _UnclearText
        kind = _kind(column)
        if kind is None or (word != "null" and kind != "bool"):
            return None
        return _QueryPart(f"({self._side(column)} IS {'NOT ' if is_denied else ''}{word.upper()})", is_exact=True)

    def _between(self, column: Column | None, operator: str) -> _QueryPart | None:
        low = self._needed_literal()
        self._need("and")
        high = self._needed_literal()
        return self._compared(column, operator, [low, high])

    def _compared(self, column: Column | None, operator: str, literals: list[_PlainValue]) -> _QueryPart | None:
        """Return a column compared with literals; None: not for sure alike in both engines."""
        kind = _kind(column)
        if kind is None or any(literal.kind != kind for literal in literals):
            return None
        is_equality = operator in _EQUALITY or operator.endswith("IN")
        if kind != "int" and not is_equality:
            return None
        texts = [literal.sql for literal in literals]
        if column is not None and column.attnum in self._native:
            if not all(_UUID_TEXT.fullmatch(text) for text in texts):
                return None
            texts = [f"{text}::uuid" for text in texts]
        right = f"({', '.join(texts)})" if operator.endswith("IN") else " AND ".join(texts)
        return _QueryPart(f"({self._side(column)} {operator} {right})", is_exact=True)

    def _side(self, column: Column | None) -> str:
        """Return a column as both engines see it: texts by their bytes, an enum or uuid as its text."""
        assert column is not None
        name = sql.identifier(column.name)
        is_native = column.attnum in self._native
        if _kind(column) != "text" or is_native:
            return name
        # Who owns an enum may have made a cast of his own to text: it would run as whoever reads, and give any text.
        text = f"textin(enum_out({name}))" if column.pg_type.category == "e" else f"{name}::text"
        return f'{text} COLLATE "C"'

    def _list(self) -> list[_PlainValue]:
        self._need("(")
        literals = [self._needed_literal()]
        while self._took(","):
            literals.append(self._needed_literal())
        self._need(")")
        return literals

    def _operator(self) -> str:
        operator = self._peek()
        if operator not in _TURNED:
            raise _UnclearText
        self._at += 1
        return operator

    def _needed_literal(self) -> _PlainValue:
        literal = self._literal()
        if literal is None:
            raise _UnclearText
        return literal

    def _literal(self) -> _PlainValue | None:
        """Return the literal that comes next; None: something else does."""
        kind, text = self._next()
        if kind == "sign" and text == "-" and self._next(1)[0] in {"number", "fraction"}:
            self._at += 1
            return self._number("-")
        if kind in {"number", "fraction"}:
            return self._number("")
        if kind == "text":
            self._at += 1
            return _PlainValue("text", sql.literal(text))
        if kind == "name" and text.lower() in {"date", "timestamp"} and self._next(1)[0] == "text":
            self._at += 2
            return _PlainValue("time", "")
        if kind == "name" and text.lower() in {"true", "false"}:
            self._at += 1
            return _PlainValue("bool", text.lower())
        return None

    def _number(self, sign: str) -> _PlainValue:
        kind, text = self._next()
        self._at += 1
        is_int = kind == "number" and int(text) <= _MOST
        return _PlainValue("int", f"({sign}{int(text)})") if is_int else _PlainValue("number", "")

    def _column(self) -> Column | None:
        """Return the column that is named; None: one that is not looked for further."""
        kind, name = self._next()
        if kind not in {"name", "quoted"} or (kind == "name" and name.lower() in _WORDS):
            raise _UnclearText
        self._at += 1
        found = [column for column in self._relation.columns if _is_alike(column.name, name)]
        if len(found) != 1 or any(_is_alike(retyped, name) for retyped in self._retyped):
            return None
        if self._readable is not None and found[0].attnum not in self._readable:
            return None
        self.read.add(found[0].attnum)
        return found[0]

    def _next(self, ahead: int = 0) -> tuple[str, str]:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else ("end", "")

    def _peek(self) -> str:
        kind, text = self._next()
        return text.lower() if kind in {"name", "sign"} else ""

    def _took(self, word: str) -> bool:
        is_next = self._peek() == word
        self._at += is_next
        return is_next

    def _need(self, word: str) -> None:
        if not self._took(word):
            raise _UnclearText


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    while not _END.match(text, at):
        found = _TOKEN.match(text, at)
        if found is None:
            raise _UnclearText
        assert found.lastgroup is not None
        yield found.lastgroup, found[found.lastgroup]
        at = found.end()


def _joined(word: str, known: list[_QueryPart], *, is_exact: bool) -> _QueryPart:
    texts = [part.sql for part in known]
    text = texts[0] if len(texts) == 1 else f"({word.join(texts)})"
    return _QueryPart(text, is_exact=is_exact and all(part.is_exact for part in known))


def _kind(column: Column | None) -> str | None:
    if column is None or column.asked:
        return None
    if column.pg_type.category == "e":
        return "text"
    return _KINDS.get(column.pg_type.oid)


def _is_alike(one: str, other: str) -> bool:
    """Whether Spark, or a Java that compares case in its own way, may take one name for the other."""
    return any(change(one) == change(other) for change in (str.casefold, str.lower, str.upper))


__all__ = ["copy_condition", "published_condition"]
