"""Table metadata as a REST catalog keeps it: the updates of the REST specification, applied to plain JSON."""

from __future__ import annotations

import copy
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

Json = dict[str, Any]


class Conflict(Exception):
    """A requirement does not hold: `CommitFailedException`."""


def new(request: Mapping[str, Any], location: str) -> Json:
    """Return the metadata of a new table."""
    schema = {**request["schema"], "schema-id": 0}
    spec = {"spec-id": 0, "fields": [], **(request.get("partition-spec") or {})} | {"spec-id": 0}
    order = request.get("write-order") or {"order-id": 0, "fields": []}
    properties = dict(request.get("properties") or {})
    found: Json = {
        "format-version": int(properties.pop("format-version", 2)), "table-uuid": str(uuid.uuid4()),
        "location": location, "last-sequence-number": 0, "last-updated-ms": _now(),
        "last-column-id": max(_ids(schema)), "current-schema-id": 0, "schemas": [schema], "default-spec-id": 0,
        "partition-specs": [spec],
        "last-partition-id": max([999, *(field["field-id"] for field in spec["fields"])]),
        "default-sort-order-id": order["order-id"], "sort-orders": [order], "properties": properties,
        "current-snapshot-id": -1, "refs": {}, "snapshots": [], "snapshot-log": [], "metadata-log": [],
        "statistics": [], "partition-statistics": [],
    }  # fmt: skip
    if found["format-version"] >= 3:
        found["next-row-id"] = 0
    return found


def _ids(schema: Any) -> Iterable[int]:
    if isinstance(schema, dict):
        yield from (value for name, value in schema.items() if name in {"id", "element-id", "key-id", "value-id"})
        for value in schema.values():
            yield from _ids(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _ids(value)


def require(metadata: Json | None, requirements: Iterable[Mapping[str, Any]]) -> None:
    """Raise `Conflict` if a requirement does not hold."""
    for one in requirements:
        kind = one["type"]
        if kind == "assert-create":
            holds = metadata is None
        elif metadata is None:
            holds = False
        elif kind == "assert-ref-snapshot-id":
            ref = metadata["refs"].get(one["ref"])
            holds = (None if ref is None else ref["snapshot-id"]) == one.get("snapshot-id")
        else:
            name = {"assert-table-uuid": "uuid", "assert-last-assigned-field-id": "last-assigned-field-id",
                    "assert-last-assigned-partition-id": "last-assigned-partition-id"}.get(kind)  # fmt: skip
            name = name or kind.removeprefix("assert-")
            kept = {"uuid": "table-uuid", "last-assigned-field-id": "last-column-id",
                    "last-assigned-partition-id": "last-partition-id"}.get(name, name)  # fmt: skip
            holds = metadata[kept] == one[name]
        if not holds:
            raise Conflict(f"Requirement failed: {kind}")


class Builder:
    """One commit to one table.

    Args:
        metadata: What it stands upon; left as it is.
    """

    def __init__(self, metadata: Json) -> None:
        self.metadata = copy.copy(metadata)
        for name in ("schemas", "partition-specs", "sort-orders", "snapshots", "snapshot-log", "statistics"):
            self.metadata[name] = list(metadata[name])
        for name in ("properties", "refs"):
            self.metadata[name] = dict(metadata[name])
        self._last: dict[str, int] = {}

    def apply(self, updates: Iterable[Mapping[str, Any]]) -> Json:
        """Apply updates and return the new metadata."""
        for update in updates:
            getattr(self, f"_{update['action'].replace('-', '_')}")(update)
        self.metadata["last-updated-ms"] = _now()
        return self.metadata

    def _assign_uuid(self, update: Mapping[str, Any]) -> None:
        self.metadata["table-uuid"] = update["uuid"]

    def _upgrade_format_version(self, update: Mapping[str, Any]) -> None:
        self.metadata["format-version"] = update["format-version"]

    def _set_location(self, update: Mapping[str, Any]) -> None:
        self.metadata["location"] = update["location"]

    def _add(self, many: str, id_name: str, one: Json) -> None:
        known = self.metadata[many]
        same = [other for other in known if {**other, id_name: 0} == {**one, id_name: 0}]
        if not same:
            number = max((other[id_name] for other in known), default=-1) + 1
            same = [{**one, id_name: number}]
            known.append(same[0])
        self._last[many] = same[0][id_name]

    def _chosen(self, many: str, number: int) -> int:
        return self._last[many] if number == -1 else number

    def _add_schema(self, update: Mapping[str, Any]) -> None:
        schema = update["schema"]
        self._add("schemas", "schema-id", schema)
        last = update.get("last-column-id") or 0
        self.metadata["last-column-id"] = max([self.metadata["last-column-id"], last, *_ids(schema)])

    def _set_current_schema(self, update: Mapping[str, Any]) -> None:
        self.metadata["current-schema-id"] = self._chosen("schemas", update["schema-id"])

    def _add_spec(self, update: Mapping[str, Any]) -> None:
        self._add("partition-specs", "spec-id", update["spec"])
        ids = [field["field-id"] for field in update["spec"]["fields"]]
        self.metadata["last-partition-id"] = max([self.metadata["last-partition-id"], *ids])

    def _set_default_spec(self, update: Mapping[str, Any]) -> None:
        self.metadata["default-spec-id"] = self._chosen("partition-specs", update["spec-id"])

    def _add_sort_order(self, update: Mapping[str, Any]) -> None:
        self._add("sort-orders", "order-id", update["sort-order"])

    def _set_default_sort_order(self, update: Mapping[str, Any]) -> None:
        self.metadata["default-sort-order-id"] = self._chosen("sort-orders", update["sort-order-id"])

    def _add_snapshot(self, update: Mapping[str, Any]) -> None:
        snapshot = update["snapshot"]
        self.metadata["snapshots"].append(snapshot)
        sequence = snapshot.get("sequence-number", 0)
        self.metadata["last-sequence-number"] = max(self.metadata["last-sequence-number"], sequence)
        if "next-row-id" in self.metadata:
            if snapshot["first-row-id"] < self.metadata["next-row-id"]:
                raise Conflict("Requirement failed: first-row-id is behind next-row-id")
            self.metadata["next-row-id"] += snapshot.get("added-rows", 0)

    def _set_snapshot_ref(self, update: Mapping[str, Any]) -> None:
        ref = {name: value for name, value in update.items() if name not in {"action", "ref-name"}}
        self.metadata["refs"][update["ref-name"]] = ref
        if update["ref-name"] == "main":
            self.metadata["current-snapshot-id"] = ref["snapshot-id"]
            entry = {"snapshot-id": ref["snapshot-id"], "timestamp-ms": _now()}
            self.metadata["snapshot-log"].append(entry)

    def _remove_snapshots(self, update: Mapping[str, Any]) -> None:
        gone = set(update["snapshot-ids"])
        for name in ("snapshots", "snapshot-log", "statistics"):
            self.metadata[name] = [one for one in self.metadata[name] if one["snapshot-id"] not in gone]

    def _remove_snapshot_ref(self, update: Mapping[str, Any]) -> None:
        self.metadata["refs"].pop(update["ref-name"], None)

    def _set_properties(self, update: Mapping[str, Any]) -> None:
        self.metadata["properties"] |= update["updates"]

    def _remove_properties(self, update: Mapping[str, Any]) -> None:
        for name in update["removals"]:
            self.metadata["properties"].pop(name, None)

    def _remove_schemas(self, update: Mapping[str, Any]) -> None:
        gone = set(update["schema-ids"])
        self.metadata["schemas"] = [one for one in self.metadata["schemas"] if one["schema-id"] not in gone]

    def _remove_partition_specs(self, update: Mapping[str, Any]) -> None:
        gone = set(update["spec-ids"])
        kept = [one for one in self.metadata["partition-specs"] if one["spec-id"] not in gone]
        self.metadata["partition-specs"] = kept


def _now() -> int:
    return int(time.time() * 1000)


__all__ = ["Builder", "Conflict", "Json", "new", "require"]
