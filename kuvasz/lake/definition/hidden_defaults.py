"""What is noted of what rows from before a column show in it, where the lake is not to show that.

A table's notes have a digest of such a value of 32 bits (`kuvasz.evolve.known`), which is as good as the value where
there are few of them: whoever reads the lake tries all countries, or all dates. So of a pseudonymous column there is
a digest by the secret of its pseudonyms, and what tells that secret from others; of one that is redacted or left out,
of which the lake shows as much whatever it holds, there is only that it has a value.
"""

from __future__ import annotations

import dataclasses
import hashlib
from typing import TYPE_CHECKING, Final

from kuvasz.model import HIDDEN

if TYPE_CHECKING:
    from kuvasz.model import Column, Relation
    from kuvasz.ports import Target

#: Of any value.
_ANY: Final = "-."

_PERSON: Final = b"kuvasz.default"

#: As many bytes as the digests of values have that the lake shows.
_BYTES: Final = 4


def over(target: Target, relation: Relation) -> Relation:
    """Return a relation of the catalog without the values that the lake is not to show.

    Args:
        target: What the map says of the table.
        relation: From the catalog.
    """
    if not target.is_hiding or all(column.missing is None for column in relation.columns):
        return relation
    return dataclasses.replace(relation, columns=tuple(_hidden(target, column) for column in relation.columns))


def _hidden(target: Target, column: Column) -> Column:
    noted = None if column.missing is None else _noted(target, column)
    return column if noted is None else dataclasses.replace(column, missing=f"{HIDDEN}{noted}")


def _noted(target: Target, column: Column) -> str | None:
    """Return what is to be noted of a column's value; None: the value, for the lake shows it."""
    if target.set is not None:  # `mask` names what its expressions give
        is_shown = not target.mask and any(_may_read(text, column.name) for text in target.set.values())
        return None if is_shown else _ANY
    method = target.mask.get(column.name)
    if method == "redact" or not target.takes(column.name):
        return _ANY
    return None if method is None else _by_secret(target.mask_secret, column)


def _may_read(expression: str, name: str) -> bool:
    return "*" in expression or name.casefold() in expression.casefold()


def _by_secret(secret: bytes, column: Column) -> str:
    from kuvasz.modes import veil  # and the decoder with it, which who only looks does without

    digest = hashlib.blake2b(
        f"{column.attnum} {column.missing}".encode(), digest_size=_BYTES, person=_PERSON,
        key=hashlib.sha512(secret).digest(),
    )  # fmt: skip
    return f"{veil.fingerprint(secret)}.{digest.hexdigest()}"


__all__ = ["over"]
