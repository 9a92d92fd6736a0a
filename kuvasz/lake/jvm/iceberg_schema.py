"""The schema of one Iceberg table, and the steps that change it."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from kuvasz.lake.format.schema import Field, LakeSchema, parse, render
from kuvasz.lake.format.schema_steps import AddField, RelaxFields, RenameField, WidenField
from kuvasz.model import LakeType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kuvasz.lake.format.schema_steps import Step
    from kuvasz.lake.jvm.table_handle import TableHandle

#: Of answers of the handle.
_ID = "schema id"


def put_properties(update: Any, properties: Mapping[str, str | None]) -> None:  # noqa: ANN401 (Iceberg's)
    """Have an update of a table's properties set them, or remove those that are None."""
    for name, value in properties.items():
        if value is None:
            update.remove(name)
        else:
            update.set(name, value)


class IcebergSchema:
    """The schema of one table."""

    def __init__(self, handle: TableHandle) -> None:
        self._handle = handle

    @property
    def id(self) -> int:
        """Id of the current schema."""
        answers = self._handle.answers
        if answers is None or _ID not in answers:
            with self._handle.asking():
                found = int(self._handle.java.schema().schemaId())
            if answers is None:
                return found
            answers[_ID] = found
        return int(answers[_ID])

    def read(self) -> LakeSchema:
        """Return the current schema."""
        with self._handle.asking():
            return parse(str(self._handle.classes.schema_json(self._handle.java.schema())))

    def earlier_columns(self) -> dict[str, str | None]:
        """Return names that columns had in earlier schemas -> the one that column has now; None: it is gone."""
        with self._handle.asking():
            to_json, table = self._handle.classes.schema_json, self._handle.java
            current = {field["id"]: field["name"] for field in json.loads(to_json(table.schema()))["fields"]}
            earlier = [json.loads(to_json(schema))["fields"] for schema in table.schemas().values()]
        pairs = [(field["name"], current.get(field["id"])) for fields in earlier for field in fields]
        other = {name: now for name, now in pairs if now != name}
        return other | {name: None for name, now in pairs if now is None}

    def change(self, steps: Sequence[Step], properties: Callable[[LakeSchema], Mapping[str, str | None]]) -> None:
        """Change the schema and, in the same commit, set properties that follow from the schema then.

        A property that is None is removed.

        Raises:
            ForeignChange: Someone else changes the schema or the layout at the same time.
        """
        self._handle.after_others(lambda: self._change(steps, properties))
        self._handle.refresh()

    def _change(self, steps: Sequence[Step], properties: Callable[[LakeSchema], Mapping[str, str | None]]) -> None:
        transaction = self._handle.java.newTransaction()
        for step in steps:
            self._take(transaction, step)
        schema = str(self._handle.classes.schema_json(transaction.table().schema()))
        update = transaction.updateProperties()
        put_properties(update, properties(parse(schema)))
        update.commit()
        transaction.commitTransaction()

    def _take(self, transaction: Any, step: Step) -> None:  # noqa: ANN401
        """Take one step."""
        update = transaction.updateSchema()
        match step:
            case AddField():
                kind = self._type(step.field)
                if step.field.initial_default is None:
                    update.addColumn(None, step.field.name, kind)
                else:
                    update.addColumn(step.field.name, kind, None, self._literal(step.field, kind))
            case RenameField():
                update.renameColumn(step.name, step.to)
            case WidenField():
                update.updateColumn(step.name, self._type(Field(field_id=1, name=step.name, type=step.type)))
            case RelaxFields():
                update.setIdentifierFields(self._handle.classes.new_list())
                update.commit()
                update = transaction.updateSchema()
                for name in step.names:
                    update.makeColumnOptional(name)
        update.commit()

    def _literal(self, field: Field, kind: Any) -> Any:  # noqa: ANN401
        jvm = self._handle.classes.jvm
        value = field.initial_default
        if field.type.kind is LakeType.DECIMAL:
            value = jvm.java.math.BigDecimal(value)
        return jvm.org.apache.iceberg.expressions.Expressions.lit(value).to(kind)

    def _type(self, field: Field) -> Any:  # noqa: ANN401
        one = dataclasses.replace(
            field, field_id=1, required=False, name="column", inner_ids=(2, 3)[: len(field.inner_ids)]
        )
        schema = self._handle.classes.jvm.org.apache.iceberg.SchemaParser.fromJson(render([one], ()))
        return schema.findField("column").type()


__all__ = ["IcebergSchema", "put_properties"]
