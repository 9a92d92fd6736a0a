"""One program: steps drawn by its seed, writes between them, and the looks at what came of it."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kuvasz.demo.postgres import EmbeddedPostgres
from kuvasz.state.tables import State
from kuvasz.verbs import verify
from tests.support.lake import LakeFolder
from tests.support.neglect.administrator import Administrator
from tests.support.neglect.application import Application
from tests.support.neglect.comparison import Comparison
from tests.support.neglect.service import EU, PATIENCE_S, Service
from tests.support.neglect.world import World
from tests.support.postgres import create_database, drop_database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.neglect.tables import Table

STEPS = 14
PAUSES_S = (0.0, 0.0, 0.5, 3.0)  #: between steps: at once, or when kuvasz has got somewhere


class Program:
    """What happens on one database."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.random = world.random
        self.application = Application(world)
        self.administrator = Administrator(world, self.application.write)
        self.service = Service(world)
        self.comparison = Comparison(world)

    def steps(self) -> list[Callable[[], None]]:
        """What may happen, as often as it is to be drawn."""
        application, service = self.application, self.service
        found = [
            application.write, application.write, application.rename, application.change_columns,
            application.change_parts, application.truncate, application.replace, self.administrator.unpublish,
            self.restart, self.restart, service.pause, service.resync, service.roll_back, service.start_second,
            self.wait, self.wait,
        ]  # fmt: skip
        return found + [self.administrator.restore] * 4 if self.world.owns_server else found

    def run(self) -> None:
        with contextlib.ExitStack() as end:
            end.callback(self.administrator.forget_backup)
            end.callback(self.service.stop)
            end.enter_context(self.comparison)
            self.administrator.publish()
            self.application.create()
            self.service.start()
            for _ in range(STEPS):
                self.service.revive()
                self.random.choice(self.steps())()
                self.application.write()
                time.sleep(self.random.choice(PAUSES_S))
            self.finish()

    def restart(self) -> None:
        self.service.stop()
        for _ in range(self.random.randrange(3)):
            application = self.application
            self.random.choice(
                [application.write, application.rename, application.change_columns, self.administrator.unpublish]
            )()
        self.service.draw_map()
        self.service.start()

    def wait(self) -> None:
        """Have kuvasz get on for a while, and look at what it shows."""
        self.look(self.random.choice([0.5, 5.0, 20.0]))

    def look(self, patience_s: float) -> bool:
        """Return whether every table streams and is as its source within a while; a difference that stays fails."""
        differing: dict[str, str] = {}
        streaming_since, end = time.monotonic(), time.monotonic() + patience_s
        while time.monotonic() < end or (differing and time.monotonic() < streaming_since + PATIENCE_S):
            if self.service.is_over:
                return False
            states = self.service.states()
            if any(states.get(table.identifier) is not State.STREAMING for table in self.followed()):
                streaming_since, differing = time.monotonic(), {}
                if time.monotonic() >= end:
                    return False
            else:
                differing = self.differences()
                if not differing and all(state is State.STREAMING for state in self.service.states().values()):
                    return True
            time.sleep(0.2)
        assert not differing, f"streaming with a difference: {differing}"
        return False

    def followed(self) -> list[Table]:
        """The tables that are to be like their source."""
        members = self.world.members
        away = () if members.is_taken else (members,)
        return [table for table in self.world.tables if table.is_mapped and table not in away]

    def differences(self) -> dict[str, str]:
        return {table.target: found for table in self.followed() if (found := self.comparison.difference(table))}

    def finish(self) -> None:
        """Have everything as it should be, do what hints say, and compare."""
        self.service.stop()
        for table in self.world.tables:
            table.is_mapped, table.mapped = True, table.name
        self.world.members.is_taken, self.world.members.mapped = True, self.world.members.target
        self.service.start()
        for table in self.world.tables:
            if table.is_paused:
                self.service.pipeline.tell("resume", table.identifier, EU)
        self.application.write()
        end = time.monotonic() + 4 * PATIENCE_S
        while not self.look(10.0):
            self.service.revive()
            assert time.monotonic() < end, f"never at rest: {self._told()}"
            self.service.follow_hints()
        self.application.write()
        assert self.look(PATIENCE_S), f"never equal: {self._told()}"
        self.verify()

    def verify(self) -> None:
        """kuvasz's own comparison finds nothing either; of what was missed in a gap a growing table says so."""
        pipeline = self.service.pipeline
        kinds = {table.identifier: table.kind for table in self.world.tables}
        for report in verify.reports(pipeline.config, session=self.world.lake.session):
            assert not report.error, report
            if not (report.gaps and kinds.get(report.target) in {"append", "changelog"}):
                assert report.left == 0, report

    def _told(self) -> str:
        return f"{self.service.states()} {self.service.pipeline.errors()}"


def run(server: EmbeddedPostgres, session: SparkSession, seed: int, folder: Path) -> None:
    """Run one program; every third has a server of its own."""
    lake, owns_server = LakeFolder(session), seed % 3 == 0
    with own_server(folder / f"server-{seed}") if owns_server else contextlib.nullcontext(server) as where:
        world = World(seed, create_database(where), lake, owns_server=owns_server)
        try:
            Program(world).run()
        finally:
            print(f"\nseed {seed}:", *world.done, sep="\n  ")  # pytest shows it if it fails
            with contextlib.suppress(Exception):
                drop_database(world.database)
            shutil.rmtree(lake.folder, ignore_errors=True)


@contextlib.contextmanager
def own_server(folder: Path) -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(folder, settings={"shared_buffers": "16MB"}) as server:
        yield server
