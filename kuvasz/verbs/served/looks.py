"""What answers the verbs that only look, for `kuvasz.admin.looks`.

Each loads its verb when it is asked: PyIceberg's catalogs take a quarter of a second that no start has to wait for.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kuvasz.admin.sources.mapped_url import SourceSelection
from kuvasz.config import effective
from kuvasz.errors import ConfigError

if TYPE_CHECKING:
    from kuvasz.admin.looks.look_answers import Look, Query
    from kuvasz.admin.looks.wait_answers import LookOn
    from kuvasz.config.load import Loaded


def _config(loaded: Loaded, _: Query) -> Any:  # noqa: ANN401 (JSON)
    return [dataclasses.asdict(option) for option in effective.options(loaded)]


def _types(_: Loaded, __: Query) -> Any:  # noqa: ANN401 (JSON)
    from kuvasz.verbs import typetable

    return [dataclasses.asdict(row) for row in typetable.rows()]


def _check(loaded: Loaded, query: Query) -> Any:  # noqa: ANN401 (JSON)
    from kuvasz.verbs import check

    if (wanted := query.get("source")) is not None:
        return check.as_json(check.of_sources(loaded.config, wanted, loaded.place_of))
    return check.as_json(check.findings(loaded.config, loaded.place_of))


def _plan(loaded: Loaded, _: Query) -> Any:  # noqa: ANN401 (JSON)
    from kuvasz.verbs import plan

    return plan.as_json(plan.plans(loaded.config, loaded.place_of))


def _asof(loaded: Loaded, query: Query) -> Any:  # noqa: ANN401 (JSON)
    from kuvasz.verbs import asof

    moment, table = _one(query, "time"), _one(query, "table")
    return asof.as_json(*asof.tables(loaded.config, time=moment, lsns=query.get("lsn", ()), table=table))


def _drift(loaded: Loaded, query: Query) -> Any:  # noqa: ANN401 (JSON)
    from kuvasz.verbs.sources import drift

    database, sid = _one(query, "database"), _one(query, "sid")
    return drift.as_json(drift.run(loaded.config, SourceSelection(database=database, sid=sid)))


def _erase(loaded: Loaded, query: Query) -> Any:  # noqa: ANN401 (JSON)
    from kuvasz.verbs.sources import erasing, row_erasing

    sid, database, table = _one(query, "sid"), _one(query, "database"), _one(query, "table")
    if table is not None or query.get("key"):
        key, with_unclear = tuple(query.get("key", ())), any(query.get("with_unclear", ()))
        asked = row_erasing.ErasureRequest(
            table=table, key=key, sid=sid, database=database, with_unclear=with_unclear
        )  # fmt: skip
        return {"would": row_erasing.would(loaded.config, asked), "leaving": []}
    tenant = erasing.tenant_of(loaded.config, SourceSelection(database=database, sid=sid))
    return {"would": erasing.would(loaded.config, tenant), "leaving": list(tenant.mapped)}


def _init(_: Loaded, query: Query) -> Any:  # noqa: ANN401 (JSON)
    from kuvasz.verbs.maps import init

    (url,) = query["url"]
    if "${" in url:
        hint = "it means this machine's variables, files and commands; give the url as it is, with its password"
        raise ConfigError("url must not refer to anything by ${…}", hint=hint)
    database, sid = _one(query, "database"), _one(query, "sid")
    patterns = {name: tuple(query.get(name, ())) for name in ("tables", "except")}
    request = init.MapRequest(
        url=url, tables=patterns["tables"], excepted=patterns["except"], database=database, sid=sid,
        has_patterns=any(query.get("patterns", ())),
    )  # fmt: skip
    return dataclasses.asdict(init.run(request, None))


def _notes(loaded: Loaded, query: Query) -> Any:  # noqa: ANN401 (JSON)
    from kuvasz.verbs.lake import notes

    return notes.tables(loaded.config, table=_one(query, "table"), sid=_one(query, "sid"))


def _trace(loaded: Loaded, query: Query) -> Any:  # noqa: ANN401 (JSON)
    from kuvasz.verbs.lake import trace

    table, is_at_source = _one(query, "table") or "", any(query.get("at_source", ()))
    found = trace.tables(
        loaded.config, table=table, key=query["key"], sid=_one(query, "sid"), at_source=is_at_source
    )  # fmt: skip
    return {"tables": found}


def _wait(loaded: Loaded, query: Query) -> LookOn:
    """Return what is told again and again what ``/status`` says, until it says how the waiting ended."""
    from kuvasz.verbs import wait

    waiting = wait.WaitingLooks(
        loaded.config, through=_one(query, "through"), lsns=query.get("lsn", ()), table=_one(query, "table"),
        sid=_one(query, "sid"), timeout=_one(query, "timeout") or "1m",
    )  # fmt: skip
    begun: list[bool] = []

    def look(answer: Mapping[str, Any]) -> dict[str, Any] | None:
        if not begun:
            waiting.begin(answer)
            begun.append(True)
        outcome = waiting.look(answer, time.monotonic())
        return None if outcome is None else wait.as_json(outcome)

    return look


def _one(query: Query, name: str) -> str | None:
    return next(iter(query.get(name, ())), None)


LOOKS: Final[Mapping[str, Look]] = {
    "config": _config, "types": _types, "check": _check, "plan": _plan, "asof": _asof, "drift": _drift,
    "init": _init, "notes": _notes, "trace": _trace, "wait": _wait, "erase": _erase,
}  # fmt: skip

__all__ = ["LOOKS"]
