"""Comparisons beside the stream: what is planted in tables of every type is found, and mended."""

from __future__ import annotations

import logging

import pytest

from kuvasz.admin.schedules.verify_schedule import NOBODY, VerificationSchedule
from kuvasz.config.model import VerificationConfig
from kuvasz.state.store import state_of
from kuvasz.state.verdicts.verdict import Verdict
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.oracle import source_rows
from tests.support.planted import INSERTS_ONLY, LEFT, PLANTED, TABLES, churn, make, plant
from tests.support.postgres import Database
from tests.support.verify_bench import Bench

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.usefixtures("soon_stopped")]


def passed(pipeline: Pipeline, schedule: VerificationSchedule) -> dict[str, Verdict]:
    """Compare until nothing is due any more; return the verdicts by table, the members' by their own."""
    count = -1
    while len(pipeline.app.verdicts.all()) > count:
        count = len(pipeline.app.verdicts.all())
        pipeline.call(schedule.look())
    labels = {(one.target, one.source): one.table if one.source != one.database else one.target
              for one in pipeline.app.states.snapshot()}  # fmt: skip
    return {
        labels[key].rpartition(".")[2] if key in labels else f"{key[0].rpartition('.')[2]} of nobody": verdict
        for key, verdict in pipeline.app.verdicts.all().items()
    }


def test_a_pass_finds_what_was_planted_in_every_type_and_mends_it(
    database: Database, lake_folder: LakeFolder, caplog: pytest.LogCaptureFixture
) -> None:
    make(database)
    config = lake_folder.config(group({"eu": database}, TABLES), mask_secret="a secret of sixteen")
    options = VerificationConfig.model_validate({"every": "1d", "share": 100, "fix": True})
    bench = Bench(config, lake_folder)
    with Pipeline(config, lake_folder) as pipeline, caplog.at_level(logging.INFO):
        pipeline.wait_streaming()
        churn(database)
        pipeline.wait_applied(database)
        schedule = VerificationSchedule(pipeline.app)
        assert pipeline.call(schedule.look()) == 1.0
        assert not pipeline.app.verdicts.all(), "nobody asked for it"
        plant(bench)
        pipeline.app.config = config.model_copy(update={"verify": options})
        found = passed(pipeline, schedule)
        assert {name: verdict.error for name, verdict in found.items() if verdict.error} == {}
        strays = {name: found.pop(name) for name in list(found) if name.endswith(" of nobody")}
        assert strays
        assert not any(verdict.differences for verdict in strays.values())
        assert {name: verdict.differences for name, verdict in found.items()} == {
            name: sum(kinds.values()) for name, kinds in PLANTED.items()
        }
        assert {name: verdict.left for name, verdict in found.items()} == LEFT
        assert min(verdict.rows for verdict in found.values()) > 0
        told = [record for record in caplog.records if getattr(record, "event", "") == "table_differs"]
        assert len(told) == len(PLANTED)

        # What was found is known after a restart; what is due comes again, and nothing else.
        assert dict(state_of(config).verdicts.all()) == dict(pipeline.app.verdicts.all())
        before = dict(pipeline.app.verdicts.all())
        bare = next(key for key in before if key[0] == "shop.bare" and key[1] != NOBODY)
        pipeline.app.verdicts.put(bare, Verdict(at=1.0, tried_at=1.0))
        pipeline.call(schedule.look())
        after = pipeline.app.verdicts.all()
        assert {key for key in before if key != bare and after[key] != before[key]} == set()
        assert (after[bare].differences, after[bare].left) == (0, 0), "it was mended"
        pipeline.assert_equal("bare", source_rows(database.url, "bare", sid="eu"), key=())

        # A table that does not follow waits for its turn.
        pipeline.tell("pause", "shop.grown", "shop_eu")
        grown = next(key for key in before if key[0] == "shop.grown" and key[1] != NOBODY)
        pipeline.app.verdicts.put(grown, Verdict(at=1.0, tried_at=1.0))
        pipeline.call(schedule.look())
        assert pipeline.app.verdicts.all()[grown].at == 1.0
    assert INSERTS_ONLY in found
