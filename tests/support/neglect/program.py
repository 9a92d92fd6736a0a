"""One program: steps drawn by its seed, writes between them, and the looks at what came of it."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kuvasz.demo.postgres import EmbeddedPostgres
from kuvasz.errors import ConfigError
from kuvasz.state.tables import State
from kuvasz.verbs import verify
from tests.support.lake import LakeFolder
from tests.support.neglect.administrator import Administrator
from tests.support.neglect.application import Application
from tests.support.neglect.comparison import Comparison
from tests.support.neglect.death import Death
from tests.support.neglect.depot import SOURCE
from tests.support.neglect.service import EU, PATIENCE_S, Service
from tests.support.neglect.world import World
from tests.support.postgres import Server, create_database, drop_database

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
        self.death = Death()
        self.service = Service(world, self.death)
        self.comparison = Comparison(world)

    def steps(self) -> list[Callable[[], None]]:
        """What may happen, as often as it is to be drawn."""
        application, service = self.application, self.service
        found = [
            application.write, application.write, application.rename, application.change_columns,
            application.change_parts, application.truncate, application.replace, self.administrator.unpublish,
            self.administrator.cut, self.restart, self.restart, self.kill, self.kill, self.fail, self.rewind_catalog,
            self.rewind_catalog, self.swap, self.unlog, application.identify, service.pause,
            service.resync, service.roll_back, service.start_second, self.wait, self.wait, self.reload, self.reload,
            self.reload,
        ]  # fmt: skip
        return found + [self.restore] * 4 if self.world.owns_server else found

    def run(self) -> None:
        with contextlib.ExitStack() as end:
            end.callback(self.administrator.forget_backup)
            end.callback(self.service.stop)
            end.enter_context(self.comparison)
            end.enter_context(self.death)
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

    def reload(self) -> None:
        """The map changes while kuvasz runs, more than once now and then; else it is started with the new one."""
        for _ in range(self.random.choice([1, 1, 2])):
            self.service.draw_map()
            try:
                self.service.reload()
            except ConfigError as error:
                self.world.note(f"not live: {error}")
                self.service.stop()
                self.service.start()
            self.application.write()
            time.sleep(self.random.choice(PAUSES_S))

    def rewind_catalog(self) -> None:
        """Copy the catalog aside, or put it back while kuvasz is stopped."""
        if self.random.random() < 0.5:
            self.service.keep_catalog()
            return
        self.service.stop()
        self.application.write()
        self.service.put_catalog_back()
        self.service.start()

    def swap(self) -> None:
        """Two tables swap their names, at once; the map says so only a while later."""
        self.application.swap()
        self.application.write()
        time.sleep(self.random.choice(PAUSES_S))
        self._rewrite_map()

    def restore(self) -> None:
        """The server is set back, and so is the map, if names were swapped since: else it means the other table."""
        self.administrator.restore()
        if self.world.are_names_crossed:
            self._rewrite_map()

    def _rewrite_map(self) -> None:
        self.service.stop()
        for table in self.world.single:
            table.mapped = table.name
        self.service.start()

    def unlog(self) -> None:
        """Have a table without WAL for a while, as PostgreSQL allows under FOR ALL TABLES.

        Not between two looks, or while kuvasz is stopped: that is not seen (docs/limits.md).
        """
        table = self.world.some()
        if not self.administrator.is_for_all or table.is_parted:
            return

        def is_(state: State) -> bool:
            return self.service.pipeline.states().get((EU, table.identifier)) is state

        if not is_(State.STREAMING):
            return
        self.world.execute(f"ALTER TABLE {table.name} SET UNLOGGED")
        end = time.monotonic() + PATIENCE_S
        while not is_(State.ERROR) and time.monotonic() < end and self.service.pipeline.error is None:
            time.sleep(0.1)
        assert is_(State.ERROR), f"an unlogged table is {self._told()}"
        self.application.write()
        self.world.execute(f"ALTER TABLE {table.name} SET LOGGED")

    def kill(self) -> None:
        """It dies, and is started with another map now and then."""
        self.service.meet_death(self.application.write)
        if self.random.random() < 0.5:
            self.application.write()
        if self.random.random() < 0.3:
            self.service.draw_map()
        self.service.start()

    def fail(self) -> None:
        self.service.fail_once(self.application.write)

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
            if not self.is_streaming():
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

    def is_streaming(self) -> bool:
        """Whether all of them stream, of every source."""
        states, depot, members = self.service.states(), self.world.depot, self.world.members
        found = [states.get((EU, table.identifier)) for table in self.followed() if table is not members]
        if members in self.followed():
            found += [state for (_, target), state in states.items() if target == members.identifier]
        if depot is not None:
            found += [states.get((SOURCE, table.identifier)) for table in self.followed() if depot.feeds(table)]
        return all(state is State.STREAMING for state in found)

    def differences(self) -> dict[str, str]:
        found = {table.target: self.comparison.difference(table) for table in self.followed()}
        found |= {f"us: {table.target}": self.comparison.difference_of_depot(table) for table in self.followed()}
        return {target: difference for target, difference in found.items() if difference}

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
        world = World(seed, create_database(where), lake, second := create_database(where), owns_server=owns_server)
        try:
            Program(world).run()
        finally:
            print(f"\nseed {seed}:", *world.done, sep="\n  ")  # pytest shows it if it fails
            for database in (world.database, second):
                with contextlib.suppress(Exception):
                    drop_database(database)
            shutil.rmtree(lake.folder, ignore_errors=True)


@contextlib.contextmanager
def own_server(folder: Path) -> Iterator[EmbeddedPostgres]:
    with Server(folder, settings={"shared_buffers": "16MB"}) as server:
        yield server
