"""What answers the verbs that only look, for `kuvasz.admin.looks`.

Each loads its verb when it is asked: PyIceberg's catalogs take a quarter of a second that no start has to wait for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kuvasz.admin.sources.mapped_url import SourceSelection
from kuvasz.config import effective
from kuvasz.errors import ConfigError

if TYPE_CHECKING:
    from kuvasz.admin.looks.look_answers import Look, Query
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

    time, table = (next(iter(query.get(name, ())), None) for name in ("time", "table"))
    return asof.as_json(*asof.tables(loaded.config, time=time, lsns=query.get("lsn", ()), table=table))


def _drift(loaded: Loaded, query: Query) -> Any:  # noqa: ANN401 (JSON)
    from kuvasz.verbs.sources import drift

    database, sid = (next(iter(query.get(name, ())), None) for name in ("database", "sid"))
    return drift.as_json(drift.run(loaded.config, SourceSelection(database=database, sid=sid)))


def _init(_: Loaded, query: Query) -> Any:  # noqa: ANN401 (JSON)
    from kuvasz.verbs.maps import init

    (url,) = query["url"]
    if "${" in url:
        hint = "it means this machine's variables, files and commands; give the url as it is, with its password"
        raise ConfigError("url must not refer to anything by ${…}", hint=hint)
    database, sid = (next(iter(query.get(name, ())), None) for name in ("database", "sid"))
    patterns = {name: tuple(query.get(name, ())) for name in ("tables", "except")}
    request = init.MapRequest(
        url=url, tables=patterns["tables"], excepted=patterns["except"], database=database, sid=sid,
        has_patterns=any(query.get("patterns", ())),
    )  # fmt: skip
    return dataclasses.asdict(init.run(request, None))


LOOKS: Final[Mapping[str, Look]] = {
    "config": _config, "types": _types, "check": _check, "plan": _plan, "asof": _asof, "drift": _drift,
    "init": _init,
}  # fmt: skip

__all__ = ["LOOKS"]
