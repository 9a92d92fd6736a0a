from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from kuvasz.config.load import load
from kuvasz.model import TableName
from kuvasz.source.check.finding import Finding, Severity
from kuvasz.verbs import check

OK = Finding(source="kuvasz_shop", check="wal_level", value="logical", needed="logical", ok=True)
REFUSED = Finding(
    source="kuvasz_shop", check="select", value="no right to read it", needed="SELECT", ok=False,
    fix='GRANT SELECT ON TABLE "public"."items" TO "rep";', table=TableName(schema="public", name="items"),
)  # fmt: skip
ADVICE = dataclasses.replace(
    REFUSED, check="name", severity=Severity.ADVICE, value="renamed", fix="write it into the map"
)
STRANGER = Finding(source="kuvasz_shop", check="cluster", value="another", needed="the one", ok=False)


@pytest.mark.parametrize(
    ("found", "code"),
    [
        ([], 0),
        ([OK, ADVICE], 0),
        ([OK, REFUSED], 3),
        ([REFUSED, STRANGER], 5),
        ([dataclasses.replace(STRANGER, ok=True)], 0),
    ],
)
def test_only_what_is_required_fails(found: list[Finding], code: int) -> None:
    assert check.exit_code(found) == code


def test_a_person_sees_a_row_each_and_below_it_what_mends_the_rest() -> None:
    found = check.render([OK, REFUSED, ADVICE])
    lines = [" ".join(line.split()) for line in found.splitlines()]
    assert lines[0] == "source table check found needed"
    assert "kuvasz_shop wal_level ok logical logical" in lines
    assert "kuvasz_shop public.items select FAILED no right to read it SELECT" in lines
    assert "kuvasz_shop public.items name advice renamed SELECT" in lines
    heading = "to mend (SQL: in the source's database, as the owner of what it names or a superuser):\n"
    assert found.split(heading)[1] == (
        "  kuvasz_shop public.items: select: no right to read it\n"
        '    GRANT SELECT ON TABLE "public"."items" TO "rep";\n'
        "  kuvasz_shop public.items: name: renamed\n"
        "    write it into the map\n"
        "\n"
        "3 checks, 1 failed, 1 to be considered"
    )


def test_a_person_with_many_sources_sees_what_is_wrong_alone() -> None:
    lines = check.render([OK, REFUSED, ADVICE], is_brief=True).splitlines()
    rows = [line.split() for line in lines[: lines.index("")]]
    assert [row[2] for row in rows[2:]] == ["select", "name"]
    assert lines[-1] == "3 checks, 1 failed, 1 to be considered"
    assert check.render([OK], is_brief=True) == "1 checks, 0 failed, 0 to be considered"


def test_nothing_is_to_be_mended_where_all_is_well() -> None:
    found = check.render([OK])
    assert "to mend" not in found
    assert found.endswith("\n\n1 checks, 0 failed, 0 to be considered")


def test_what_is_long_is_cut_in_its_row_and_whole_below() -> None:
    long = dataclasses.replace(REFUSED, value="x" * 61)
    row, below = check.render([long]).split("to mend (")
    assert f"{'x' * 59}…" in row
    assert "x" * 60 not in row
    assert "x" * 61 in below
    assert f" {'x' * 60} " in check.render([dataclasses.replace(long, value="x" * 60)])


def test_a_program_gets_everything() -> None:
    assert check.as_json([OK, REFUSED]) == [
        {
            "source": "kuvasz_shop", "table": None, "check": "wal_level", "ok": True, "severity": "required",
            "value": "logical", "needed": "logical", "fix": None,
        },
        {
            "source": "kuvasz_shop", "table": "public.items", "check": "select", "ok": False, "severity": "required",
            "value": "no right to read it", "needed": "SELECT",
            "fix": 'GRANT SELECT ON TABLE "public"."items" TO "rep";',
        },
    ]  # fmt: skip


def test_secrets_of_the_lake_that_wait_for_a_start_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever exchanges one would wait for it in vain; what is asked for again, and what is no secret, is passed."""
    for name in ("token", "key", "region"):
        (tmp_path / name).write_text(name)
    properties = {"token": "${file:token}", "s3.secret-access-key": "${file:key}", "client.region": "${file:region}"}
    lake = {"type": "rest", "uri": "https://c", "warehouse": "s3://lake/wh", "properties": properties}
    shop = {"database": "shop", "urls": [{"url": "postgresql:///shop"}], "tables": {"items": None}}
    (tmp_path / "map.yaml").write_text(json.dumps({"lake": lake, "databases": [shop]}))
    monkeypatch.setattr(check, "_OF_LAKE", ())
    (found,) = check._lake(load(tmp_path / "map.yaml", {}).config)
    assert (found.check, found.value) == ("credentials", "s3.secret-access-key is asked for at a start alone")
    assert not found.is_blocking
