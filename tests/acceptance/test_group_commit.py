"""kuvasz is killed around commits of a group: its tables never show a part of a transfer, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support import bank
from tests.support.oracle import source_rows
from tests.support.postgres import Database
from tests.support.process import Process

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

#: Before files of metadata are there, between them and the one step that shows all, and behind that.
KILLS = ("after_delete_files:kill:5", "before_commit:kill:3", "after_commit:kill:4", "before_durable:kill:5")

EAGER = {"interval": "300ms", "merge_interval": "300ms", "min_files": 3}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_bank_whose_kuvasz_is_killed_has_the_same_money(
    database: Database, new_process: Callable[..., Process]
) -> None:
    kuvasz = new_process(bank.open_bank(database), maintenance=EAGER, pipeline={"workers": 3})
    catalog = kuvasz.folder / "catalog.db"

    def look() -> None:
        assert bank.money(bank.tables_at(bank.pointers(catalog))) == bank.MONEY

    kuvasz.start()
    kuvasz.wait_event("copied", 2)
    kuvasz.kill()
    with bank.Transfers(database):
        for point in KILLS:
            kuvasz.start(failpoints=point)
            while kuvasz.is_running and not kuvasz.found("failpoint"):
                look()
            kuvasz.wait_killed()
            look()
    assert kuvasz.start("--until-caught-up").wait() == 0, kuvasz.report()
    look()
    for table in bank.TABLES:
        kuvasz.assert_equal(table, source_rows(database.url, table, sid="eu"), key=("sid", "id"))
