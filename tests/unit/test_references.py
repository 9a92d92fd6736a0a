"""What the pages list of commands, errors, events and metrics is what the code has."""

from __future__ import annotations

from types import ModuleType

import pytest

from kuvasz.errors import KuvaszError
from tests.support import command_list, error_list, event_list, generated, log_schema, metric_list, route_list

pytestmark = pytest.mark.text

#: Kinds that nothing raises: all others stand in their tree, and who starts nothing ends with the exit code of one.
SILENT = {"KuvaszError", "CheckError"}

PARTS = {
    "commands": (command_list, command_list.text),
    "kinds of errors": (error_list, error_list.kind_table),
    "messages": (error_list, error_list.message_list),
    "events": (event_list, event_list.table),
    "facts": (log_schema, log_schema.table),
    "metrics": (metric_list, metric_list.table),
    "routes": (route_list, route_list.text),
}


@pytest.mark.parametrize("name", PARTS)
def test_a_page_is_as_the_code_makes_it(name: str) -> None:
    module, made = PARTS[name]
    page = module.PAGE.read_text("utf-8")
    assert page == generated.replaced(page, name, made()), f"{_name(module)} writes it"


def _name(module: ModuleType) -> str:
    return f"python -m {module.__name__}"


def test_a_part_that_is_old_is_written_anew_and_what_people_wrote_stays() -> None:
    page = "before\n<!-- metrics: old -->\nanything\n<!-- end -->\nafter\n"
    made = generated.part("metrics", "tests.support.metric_list", ["new"])
    assert generated.replaced(page, "metrics", made) == f"before\n{made}\nafter\n"
    with pytest.raises(LookupError):
        generated.replaced("nothing", "metrics", made)


def test_cells_are_what_they_say() -> None:
    assert generated.table(("a",), [("b | <c> *d*\ne `<f> *`",)])[2:] == ["| b \\| &lt;c> \\*d\\* e `<f> *` |"]


def test_every_kind_of_error_is_listed_with_what_comes_of_it() -> None:
    text = error_list.kind_table()
    assert "| `SourceRefused` | 3 | source | by a person, after mending it | A source lacks" in text.replace("· ", "")
    for kind in error_list.kinds():
        assert kind is KuvaszError or f"`{kind.__name__}`" in text


def test_messages_are_found_where_they_are_raised() -> None:
    found = error_list.messages()
    assert ("--set …: no value", "write --set pipeline.workers=4") in found["ConfigError"]
    rewound = dict(found["LakeRewound"])["someone set the table back in the lake: …"]
    assert rewound == "copy it again: kuvasz resync --table …; or `on_lake_rewound: repair` compares and mends it"
    silent = {kind.__name__ for kind in error_list.kinds()} - found.keys()
    assert silent == SILENT
    assert sum(map(len, found.values())) > 250


def test_a_metric_is_listed_with_its_labels_and_alerts() -> None:
    rows = metric_list.table().splitlines()
    assert "| `kuvasz_rows_total` \\* | counter | table, op |" in "\n".join(rows)
    (lag,) = [row for row in rows if row.startswith("| `kuvasz_lag_seconds`")]
    assert "`KuvaszLagging`, `KuvaszLaggingLong`" in lag


def test_every_option_of_a_verb_is_listed() -> None:
    text = command_list.text()
    for verb, command in command_list.group().commands.items():
        section = text.partition(f"\n## kuvasz {verb}\n")[2].partition("\n## ")[0]
        assert [name for one in command.params for name in one.opts if f"`{name}" not in section] == []
