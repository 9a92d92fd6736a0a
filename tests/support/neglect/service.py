"""kuvasz under one program, and what people do to it and to its lake."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from kuvasz.config.model import OnLakeRewound
from kuvasz.errors import CheckError
from kuvasz.state.store import state_of
from kuvasz.state.tables import State
from tests.support.lake import group
from tests.support.neglect.death import POINTS, MortalPipeline
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from kuvasz.config.model import Config
    from kuvasz.errors import KuvaszError
    from tests.support.neglect.death import Death
    from tests.support.neglect.tables import Table
    from tests.support.neglect.world import World

EU = "shop_eu"
PATIENCE_S = 120.0

#: Its tables share columns with others of the depot, and no application waits for another one.
EVOLVE = {"on_schema_change": "evolve"}


class Service:
    """kuvasz, started again and again with what the map says by then."""

    pipeline: MortalPipeline  #: while it runs

    def __init__(self, world: World, death: Death) -> None:
        self.world = world
        self.random = world.random
        self.on_slot_lost = self.random.choice(["resync", "repair"])
        self.on_lake_rewound = self.random.choice(list(OnLakeRewound))
        self._death = death
        self._kept = world.lake.folder / "catalog.kept"
        self._stack = contextlib.ExitStack()

    def draw_map(self) -> None:
        """Have the map lack a table now and then, or have a name of before."""
        members = self.world.members
        for table in self.world.tables:
            table.is_mapped = self.random.random() < 0.85
            if self.random.random() < 0.5:
                table.mapped = table.name
            if not table.is_paused and table is not members and self.random.random() < 0.15:
                table.namespace = "archive" if table.namespace == "shop" else "shop"
            if table.may_be_filtered and self.random.random() < 0.15:
                table.even_alone = not table.even_alone
        members.is_taken = self.random.random() < 0.8

    def start(self) -> None:
        if not any(table.is_mapped for table in self.world.tables):
            self.world.tables[0].is_mapped = True
        config = self._config()
        self._stack.enter_context(state_of(config).own("replicates"))
        self.pipeline = self._stack.enter_context(MortalPipeline(config, self.world.lake))

    def reload(self) -> None:
        """The map changes while kuvasz runs; nothing does where that needs a restart, or the last one is under way.

        Raises:
            ConfigError: It is so.
        """
        if not any(table.is_mapped for table in self.world.tables):
            self.world.tables[0].is_mapped = True
        config, app = self._config("reload"), self.pipeline.app

        async def take_over() -> None:
            app.take_over(app.difference(config))

        self.pipeline.call(take_over())
        self.pipeline.config = app.config

    def _config(self, what: str = "start") -> Config:
        mapped = {table.mapped: EVOLVE | table.entry for table in self.world.tables if table.is_mapped}
        self.world.note(f"{what} with {mapped}")
        entries = group({"eu": self.world.database}, mapped)
        if self.world.depot is not None:
            entries += self.world.depot.entries(self.world.tables)
        config = self.world.lake.config([entry | {"on_slot_lost": self.on_slot_lost} for entry in entries])
        rewound = config.lake.model_copy(update={"on_lake_rewound": self.on_lake_rewound})
        return config.model_copy(update={"lake": rewound})

    def stop(self) -> None:
        self.world.note("stop")
        self._stack.close()
        self._stack = contextlib.ExitStack()

    def meet_death(self, meanwhile: Callable[[], None]) -> None:
        """It is killed at a point that it passes soon, or else at the next one; then it is not running."""
        point, passes = self.random.choice(POINTS), self.random.choice([1, 1, 2, 5])
        self.world.note(f"kill at {point} {passes}")
        self._death.wait_at(point, passes, kills=True)
        meanwhile()
        has_ended = self.pipeline.ends_within(self.random.choice([0.0, 1.0, 5.0]))
        self.world.note("dead" if has_ended else "kill now")
        self._death.come()
        self.pipeline.end()
        self._stack.close()
        self._stack = contextlib.ExitStack()
        self._death.leave()

    def fail_once(self, meanwhile: Callable[[], None]) -> None:
        """Something fails at one of its points, as it may there."""
        point = self.random.choice(POINTS)
        self.world.note(f"fail at {point}")
        self._death.wait_at(point, self.random.choice([1, 2]), kills=False)
        meanwhile()

    # What people do

    def tell(self, verb: str, table: Table) -> None:
        self.world.note(f"{verb} {table.target}")
        app = self.pipeline.app
        if (table.identifier, EU) not in {(state.target, state.source) for state in app.states.snapshot()}:
            # The map has it by a new name that is not in use yet: over HTTP the answer would be 404.
            wait_until(lambda: not app._sources.is_changing, f"{table.identifier} is known")
        self.pipeline.tell(verb, table.identifier, EU)

    def pause(self) -> None:
        table = self.world.some()
        if table.is_mapped:
            self.tell("resume" if table.is_paused else "pause", table)
            table.is_paused = not table.is_paused

    def resync(self) -> None:
        table = self.world.some()
        if table.is_mapped:
            self.tell("resync", table)

    def follow_hints(self) -> None:
        """Do what the hints say of tables in error."""
        for state in self.pipeline.app.states.snapshot():
            if state.state is State.ERROR and state.error is not None:
                hint = state.error.hint
                assert hint, f"an error without a hint: {state.error}"
                verbs = [verb for verb in ("resync", "retry") if f"kuvasz {verb}" in hint]
                if not verbs and "choose another `target`" in hint:
                    self._move(state.target, state.error)
                    return
                verb = self.random.choice(verbs or ["retry"])
                self.world.note(f"{verb} {state.target}: {state.error}")
                self.pipeline.tell(verb, state.key, state.database)

    def _move(self, target: str, error: KuvaszError) -> None:
        """Give a table of the map another target."""
        (table,) = [table for table in self.world.tables if table.identifier == target]
        table.namespace = f"anew_{self.world.number()}"
        self.world.note(f"to {table.identifier}: {error}")
        self.stop()
        self.start()

    def roll_back(self) -> None:
        """Set a table back in the lake, while kuvasz runs."""
        table, lake = self.world.some(), self.world.lake
        name = f"{lake.catalog}.{table.identifier}"
        with contextlib.suppress(Exception):  # it is not there yet, or someone commits at the same time
            java: Any = lake.session._jvm
            loaded = java.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(lake.session._jsparkSession, name)
            found = lake.session.sql(f"SELECT snapshot_id FROM {name}.history").collect()
            loaded.manageSnapshots().rollbackTo(self.random.choice([row.snapshot_id for row in found])).commit()
            self.world.note(f"roll {table.identifier} back in the lake")

    def keep_catalog(self) -> None:
        """Copy the lake's catalog aside."""
        self.world.note("copy the catalog aside")
        _copy(self.world.lake.folder / "catalog.db", self._kept)

    def put_catalog_back(self) -> None:
        """Put a copy of the catalog back, if there is one: all tables of the lake are as they were then."""
        if self._kept.exists():
            self.world.note("put the catalog back")
            _copy(self._kept, self.world.lake.folder / "catalog.db")

    def start_second(self) -> None:
        """Someone starts kuvasz once more on the same state folder: refused, and nothing else happens."""
        self.world.note("start a second one")
        command = [sys.executable, "-m", "kuvasz", "--config", str(self.world.lake.folder / "map.yaml")]
        second = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert (second.returncode, "is in use: " in second.stderr) == (2, True), second

    # How it is

    @property
    def is_over(self) -> bool:
        """Whether it ended because none of the tables can be replicated."""
        return self.pipeline.exit_code == CheckError.exit_code

    def revive(self) -> None:
        """Where it ended because none of the tables can be replicated, do what the hints say and start again."""
        if self.is_over:
            errors = self.pipeline.errors()
            assert errors, "it ended without an error"
            assert all("kuvasz resync" in error for error in errors), errors
            self.world.note(f"ended: {errors}")
            self.stop()
            for table in [table for table in self.world.tables if table.is_mapped]:
                self.world.note(f"resync {table.target}")
                command = [sys.executable, "-m", "kuvasz", "resync", "--table", table.identifier]
                subprocess.run([*command, "--config", str(self.world.lake.folder / "map.yaml")], check=True)
            self.start()

    def states(self) -> Mapping[tuple[str, str], State]:
        """(Source, target) -> state."""
        ended = self.pipeline.error or self.pipeline.exit_code
        assert ended is None, f"kuvasz ended: {ended!r} {self.pipeline.errors()}"
        return self.pipeline.states()


def _copy(catalog: Path, to: Path) -> None:
    """Copy the rows of a catalog into another one, which may be open."""
    with contextlib.closing(sqlite3.connect(catalog)) as old, contextlib.closing(sqlite3.connect(to)) as new:
        old.backup(new)
