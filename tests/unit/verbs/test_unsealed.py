from __future__ import annotations

from pathlib import Path

import pytest

from kuvasz.verbs import unsealed
from tests.support.maps import loaded

MAP = "databases: [{{database: shop, urls: [{{url: postgresql://h/d}}], tables: {{t: {table}}}}}]\n{more}"
SECRET = "pipeline: {seal_secret: sixteen characters}"
LOG = "cluster: {coordinator: 'postgresql://db/k', log: /log}"
CLEAR = "spark: {conf: {spark.io.encryption.enabled: false}}"


def told(folder: Path, table: str, more: str = "") -> list[str]:
    found = list(unsealed.findings(loaded(folder, MAP.format(table=table, more=more)).config))
    assert not any(one.is_blocking or one.ok for one in found)
    return [one.check for one in found]


@pytest.mark.parametrize(("table", "more", "checks"), [
    ("{}", "", []),
    ("{}", f"{CLEAR}\n{LOG}", []),
    ("{mask: {a: redact}}", "", []),  # what is parked has masks alone
    ("{mask: {a: redact}}", CLEAR, ["spark_files"]),
    ("{filter: n > 1}", "", ["parked"]),
    ("{set: {a: b}}", "", ["parked"]),
    ("{set: {a: b}}", "pipeline: {park_bytes: 0}", []),
    ("{set: {a: b}}", SECRET, []),
    ("{set: {a: b}}", f"{SECRET}\n{CLEAR}", ["spark_files"]),
    ("{set: {a: b}}", LOG, ["parked", "staged"]),
    ("{set: {a: b}}", f"{LOG}\n{SECRET}", []),
    ("{mask: {a: redact}}", f"{LOG}\n{SECRET}", []),
    ("{set: {a: b}}", "cluster: {coordinator: 'postgresql://db/k', log: /log, role: read}", ["staged"]),
])  # fmt: skip
def test_it_is_told_what_lies_as_it_was_sent(tmp_path: Path, table: str, more: str, checks: list[str]) -> None:
    assert told(tmp_path, table, more) == checks


def test_many_tables_are_one_line(tmp_path: Path) -> None:
    tables = ", ".join(f"t{number}: {{set: {{a: b}}}}" for number in range(9))
    text = f"databases: [{{database: shop, urls: [{{url: postgresql://h/d}}], tables: {{{tables}}}}}]"
    (one,) = unsealed.findings(loaded(tmp_path, text).config)
    assert one.value.startswith(
        "rows of kuvasz.t0, kuvasz.t1, kuvasz.t2 and 6 more are parked as their source sends them"
    )
