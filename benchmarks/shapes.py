"""Shapes of rows: how a table of the workload is declared, filled, changed and compared.

Every value of a row follows from its number ``{g}`` and the ``{seed}``, so that one seed makes one content. Sizes
are those of a row as PostgreSQL prints it.
"""

from __future__ import annotations

import dataclasses

from kuvasz.demo.fingerprint import Form, RowField


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A table of the workload; its key is always ``id bigint``."""

    name: str
    columns: str  #: the column definitions after ``id``
    row: str  #: the values after ``id``, over {g} and {seed}
    update: str  #: what an UPDATE sets
    fields: tuple[RowField, ...]  #: what is compared

    def create(self, table: str) -> str:
        """Return the CREATE TABLE, without its key."""
        return f"CREATE TABLE {table} (id bigint NOT NULL, {self.columns})"

    def values(self, number: str, seed: int) -> str:
        """Return the values of the row with this number, an SQL expression."""
        return f"{number}, " + self.row.format(g=number, seed=seed)


_INSTANT = "timestamptz '2025-01-01 00:00:00+00' + {g} * interval '1.000007 s'"

NARROW = Shape(
    name="narrow",  # 110 bytes
    columns="""
        account integer NOT NULL, label text NOT NULL, amount numeric(12,2) NOT NULL, at timestamptz NOT NULL,
        is_open boolean""",
    # `label` is 40 characters long.
    row=f"""
        ({{g}} * 7919 + {{seed}}) % 1000003,
        md5(({{g}} + {{seed}})::text) || lpad(({{g}} % 100000000)::text, 8, '0'),
        ({{g}} * 15485863 % 1000000000) / 100.0, {_INSTANT},
        CASE WHEN {{g}} % 11 <> 0 THEN {{g}} % 3 = 0 END""",
    update="amount = amount + 0.01, account = (account + 1) % 1000003, at = clock_timestamp()",
    fields=(
        RowField(name="id"),
        RowField(name="account"),
        RowField(name="label"),
        RowField(name="amount"),
        RowField(name="at", form=Form.INSTANT),
        RowField(name="is_open"),
    ),
)

WIDE = Shape(
    name="wide",  # 2 kB, of which a third is a JSON document; below the size at which PostgreSQL stores out of line
    columns="document jsonb NOT NULL, body text NOT NULL, amount numeric(12,2) NOT NULL, at timestamptz NOT NULL",
    row=f"""
        jsonb_build_object(
            'order', {{g}}, 'customer', md5(({{g}} + {{seed}})::text),
            'tags', jsonb_build_array('new', {{g}} % 7, NULL),
            'lines', (SELECT jsonb_agg(jsonb_build_object('sku', md5(({{g}} * 10 + n)::text), 'price', n * 1.25))
                      FROM generate_series(1, 6) AS n)),
        (SELECT string_agg(md5(({{g}} * 100 + part + {{seed}})::text), ' ') FROM generate_series(1, 36) AS part),
        ({{g}} * 15485863 % 1000000000) / 100.0, {_INSTANT}""",
    update="amount = amount + 0.01, document = document || '{\"changed\": true}', at = clock_timestamp()",
    fields=(
        RowField(name="id"),
        RowField(name="document"),
        RowField(name="body"),
        RowField(name="amount"),
        RowField(name="at", form=Form.INSTANT),
    ),
)

#: Type, value and form of the kinds that the 200 columns cycle through.
_KINDS = (
    ("bigint", "({g} * {n} + {seed}) % 1000003", Form.TEXT),
    ("text", "substr(md5(({g} + {n})::text), 1, 12)", Form.TEXT),
    ("numeric(12,2)", "(({g} * {n}) % 1000000) / 100.0", Form.TEXT),
    ("timestamptz", _INSTANT.replace("{g}", "({g} + {n})"), Form.INSTANT),
    ("boolean", "CASE WHEN ({g} + {n}) % 11 <> 0 THEN ({g} + {n}) % 3 = 0 END", Form.TEXT),
)


def _many(width: int) -> Shape:
    chosen = [(f"c{number}", *_KINDS[number % len(_KINDS)]) for number in range(width - 1)]
    values = [value.replace("{n}", str(number + 1)) for number, (_, _, value, _) in enumerate(chosen)]
    return Shape(
        name="columns",
        columns=", ".join(f"{name} {kind}" for name, kind, _, _ in chosen),
        row=", ".join(values),
        update="c0 = c0 + 1, c2 = c2 + 0.01, c3 = clock_timestamp()",
        fields=(RowField(name="id"), *(RowField(name=name, form=form) for name, _, _, form in chosen)),
    )


COLUMNS = _many(200)

SHAPES = {shape.name: shape for shape in (NARROW, WIDE, COLUMNS)}
