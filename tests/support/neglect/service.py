"""kuvasz under one program, and what people do to it and to its lake."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from kuvasz.config.model import OnLakeRewound
from kuvasz.errors import CheckError
from kuvasz.state.store import state_of
from kuvasz.state.tables import State
from tests.support.lake import Pipeline, group

if TYPE_CHECKING:
    from kuvasz.config.model import Config
    from tests.support.neglect.tables import Table
    from tests.support.neglect.world import World

EU = "shop_eu"
PATIENCE_S = 120.0


class Service:
    """kuvasz, started again and again with what the map says by then."""

    pipeline: Pipeline  #: while it runs

    def __init__(self, world: World) -> None:
        self.world = world
        self.random = world.random
        self.on_slot_lost = self.random.choice(["resync", "repair"])
        self.on_lake_rewound = self.random.choice(list(OnLakeRewound))
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
        self.pipeline = self._stack.enter_context(Pipeline(config, self.world.lake))

    def _config(self) -> Config:
        mapped = {table.mapped: table.entry for table in self.world.tables if table.is_mapped}
        self.world.note(f"start with {mapped}")
        (entry,) = group({"eu": self.world.database}, mapped)
        config = self.world.lake.config([entry | {"on_slot_lost": self.on_slot_lost}])
        rewound = config.lake.model_copy(update={"on_lake_rewound": self.on_lake_rewound})
        return config.model_copy(update={"lake": rewound})

    def stop(self) -> None:
        self.world.note("stop")
        self._stack.close()
        self._stack = contextlib.ExitStack()

    # What people do

    def tell(self, verb: str, table: Table) -> None:
        self.world.note(f"{verb} {table.target}")
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
                verb = self.random.choice(verbs or ["retry"])
                self.world.note(f"{verb} {state.target}: {state.error}")
                self.pipeline.tell(verb, state.target, EU)

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

    def states(self) -> dict[str, State]:
        """Target -> state."""
        ended = self.pipeline.error or self.pipeline.exit_code
        assert ended is None, f"kuvasz ended: {ended!r} {self.pipeline.errors()}"
        return {target: state for (_, target), state in self.pipeline.states().items()}
