"""The demo: three servers with live load, the same ``kuvasz --config …`` that production runs, and a comparison.

What is shown is the product itself: kuvasz runs as a process of its own with the terminal in its hands. When the
time is over, or at Ctrl-C, the load stops, Spark compares the lake with the sources until both hold the same rows,
and everything that was started is stopped and removed again; only the lake stays, to be looked at.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import rich.box
import rich.console
import rich.table

from kuvasz.demo import comparison, servers, shop
from kuvasz.demo.interruption import Interruption
from kuvasz.demo.load import Counts, Load
from kuvasz.errors import ConfigError, KuvaszError, LakeError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from kuvasz.demo.postgres import EmbeddedPostgres

#: Written into the demo's folders: it deletes only what carries it.
MARKER = ".kuvasz-demo"

#: Seconds to wait: for the first start with compilation of all kernels, for the last changes, for a clean exit.
_START_S, _CATCH_UP_S, _EXIT_S = 300.0, 60.0, 35.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What one run does."""

    config: Path
    seconds: float = 60.0  #: of live load after the streams have started
    changes_per_second: float = 100.0  #: at each source
    seed: int = 1
    data_folder: Path = Path("demo-data")
    lake_folder: Path = Path("demo-lake")

    @property
    def environment(self) -> dict[str, str]:
        """What differs from the map: the demo's lake is never one of its user."""
        folder = self.lake_folder.absolute()
        return {
            "KUVASZ_LAKE__TYPE": "jdbc",
            "KUVASZ_LAKE__URI": f"jdbc:sqlite:{folder}/catalog.db",
            "KUVASZ_LAKE__WAREHOUSE": f"{folder}/warehouse",
            "KUVASZ_PIPELINE__STATE": f"{folder}/state",
        }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo and return its exit code: 0 equal, 4 not, 1 or kuvasz's own where something failed."""
    settings = _settings(arguments)
    console = rich.console.Console()
    with Interruption() as interruption:
        try:
            return _run(settings, console, interruption)
        except KuvaszError as error:
            console.print(f"[red]error:[/red] {error}", highlight=False, soft_wrap=True)
            return error.exit_code
        except (RuntimeError, psycopg.Error) as error:
            # Servers that do not start, a load that was refused: everything is stopped and removed by now.
            console.print(f"[red]error:[/red] {error}", highlight=False, soft_wrap=True)
            return 1
        except KeyboardInterrupt:
            return 128 + (interruption.signal or signal.SIGINT)


def _settings(arguments: Sequence[str] | None) -> Settings:
    environment = os.environ
    parser = argparse.ArgumentParser(prog="kuvasz demo", description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--config", type=Path, default=Path("config/map.yaml"))
    parser.add_argument("--seconds", type=float, default=float(environment.get("DEMO_SECONDS", "60")))
    parser.add_argument("--rate", type=float, default=float(environment.get("DEMO_RATE", "100")))
    parser.add_argument("--seed", type=int, default=int(environment.get("DEMO_SEED", "1")))
    chosen = parser.parse_args(arguments)
    return Settings(config=chosen.config, seconds=chosen.seconds, changes_per_second=chosen.rate, seed=chosen.seed)


def _run(settings: Settings, console: rich.console.Console, interruption: Interruption) -> int:
    clear(settings.lake_folder)
    rows = sum(table.rows for table in shop.TABLES) * len(servers.SIDS)
    console.print(f"starting {len(servers.SIDS)} PostgreSQL servers with {rows:,} rows …")
    with contextlib.ExitStack() as stack:
        running = stack.enter_context(servers.sources(settings.data_folder))
        stack.callback(interruption.close)  # runs first: the clean-up is not to be torn by a second Ctrl-C
        os.environ.update({**servers.urls(running), **settings.environment})
        for name, url in servers.urls(running).items():
            console.print(f"  {name}={url}", highlight=False)
        loads = stack.enter_context(_load(settings, running))
        command = [sys.executable, "-m", "kuvasz", "--config", str(settings.config)]
        console.print(f"$ kuvasz --config {settings.config}", style="bold", markup=False, highlight=False)
        process = stack.enter_context(_kuvasz(command))
        _await_streams(running, process, interruption)
        end_at = time.monotonic() + settings.seconds
        session, namespace = _open_lake(settings.config)
        stack.callback(_close, session)
        interruption.arm()
        # Within the demo's time: Spark's first look at anything takes much longer than its later ones.
        comparison.compare(session, namespace, {})
        comparison.ages(session, namespace)
        while process.poll() is None and not interruption.is_set() and time.monotonic() < end_at:
            interruption.wait(min(0.5, max(0.0, end_at - time.monotonic())))
        if process.poll() is not None:
            return process.returncode or 1
        freshness = comparison.ages(session, namespace)
        counts = {sid: load.stop() for sid, load in loads.items()}
        stopped_at = time.monotonic()
        lines = _compare_until_equal(session, namespace, running, process)
        waited = time.monotonic() - stopped_at
        code = _end(process)
        _report(console, lines, freshness, counts, waited, settings.lake_folder)
        return code or (0 if all(line.is_equal for line in lines) else 4)


def clear(folder: Path) -> None:
    """Remove the folder of an earlier demo and leave an empty one that is marked as the demo's.

    Raises:
        ConfigError: The folder holds something that no demo has made.
    """
    if folder.exists() and any(folder.iterdir()):
        if not (folder / MARKER).exists():
            raise ConfigError(
                f"the folder {folder.absolute()} holds something that the demo did not make",
                hint="move it away, or run the demo in another folder",
            )
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARKER).write_text("made by `kuvasz demo`, which deletes this folder at its next start\n")


@contextlib.contextmanager
def _load(settings: Settings, running: Mapping[str, EmbeddedPostgres]) -> Iterator[dict[str, Load]]:
    loads = {
        sid: Load(server.url(shop.DATABASE), sid, changes_per_second=settings.changes_per_second, seed=settings.seed)
        for sid, server in running.items()
    }
    try:
        for load in loads.values():
            load.start()
        yield loads
    finally:
        for load in loads.values():
            with contextlib.suppress(Exception):  # raised already where the counts were asked for
                load.stop()


@contextlib.contextmanager
def _kuvasz(command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    # In a session of its own, so that Ctrl-C reaches the demo alone: the lake has to catch up before kuvasz ends.
    process = subprocess.Popen(list(command), stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        yield process
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> int:
    """Stop kuvasz the way an init system does, and return its exit code."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_EXIT_S)
        except subprocess.TimeoutExpired:
            # The JVM ends with it, and Spark's workers with the JVM.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return process.returncode


def _await_streams(
    running: Mapping[str, EmbeddedPostgres], process: subprocess.Popen[bytes], interruption: Interruption
) -> None:
    """Wait until every source is being read.

    Raises:
        SystemExit: kuvasz ended before; with its exit code, or 1 if that was 0.
        KeyboardInterrupt: Asked to end before there is anything to compare.
        LakeError: The sources are not read after a long time.
    """
    give_up_at = time.monotonic() + _START_S
    while servers.streaming_slots(running) < len(running):
        if interruption.wait(0.5):
            raise KeyboardInterrupt
        if process.poll() is not None:
            raise SystemExit(process.returncode or 1)
        if time.monotonic() > give_up_at:
            raise LakeError(
                f"kuvasz does not read all {len(running)} sources after {_START_S:.0f} s",
                hint="its messages above say why",
            )


def _open_lake(path: Path) -> tuple[SparkSession, str]:
    """Return a second, reading Spark session and the lake's namespace in it."""
    from kuvasz.config.load import load  # late: importing Spark takes a second
    from kuvasz.lake.jvm.spark import open_session

    config = load(path).config
    return open_session(config), f"{config.lake.name}.{config.lake.namespace}"


def _close(session: SparkSession) -> None:
    """Stop the session and its JVM, which would else live on for some seconds after this process."""
    gateway = session.sparkContext._gateway
    session.stop()
    java = getattr(gateway, "proc", None)
    if gateway is not None and java is not None:
        gateway.shutdown()
        java.stdin.close()  # PySpark's JVM ends with its standard input
        java.wait(_EXIT_S)


def _compare_until_equal(
    session: SparkSession, namespace: str, running: Mapping[str, EmbeddedPostgres],
    process: subprocess.Popen[bytes],
) -> list[comparison.Line]:  # fmt: skip
    """Compare again and again, since the last changes are still on their way; return the last comparison."""
    sources = {sid: shop.fingerprints(server.url(shop.DATABASE)) for sid, server in running.items()}
    give_up_at = time.monotonic() + _CATCH_UP_S
    found: dict[str, list[comparison.Line]] = {}
    while True:
        is_last = process.poll() is not None or time.monotonic() > give_up_at
        # The sources stand still now, so that a table which is equal stays so.
        for table in shop.TABLES:
            if not all(line.is_equal for line in found.get(table.name, ())) or table.name not in found:
                found[table.name] = comparison.compare(session, namespace, sources, [table])
        lines = [line for part in found.values() for line in part]
        if is_last or all(line.is_equal for line in lines):
            return lines


def _report(
    console: rich.console.Console, lines: Sequence[comparison.Line], freshness: Mapping[str, float],
    counts: Mapping[str, Counts], waited: float, lake: Path,
) -> None:  # fmt: skip
    table = rich.table.Table(
        title="rows in the lake, as Spark reads it, and at the sources", box=rich.box.SIMPLE_HEAD
    )
    for name in ("table", "sid"):
        table.add_column(name)
    for name in ("in the lake", "at the source"):
        table.add_column(name, justify="right")
    table.add_column("same rows")
    table.add_column("newest commit under load", justify="right")
    for line in lines:
        age = f"{freshness[line.table]:.1f} s ago" if line.table in freshness else "-"
        rows = "-" if line.lake is None else f"{line.lake.rows:,}"
        verdict = "[green]equal[/green]" if line.is_equal else "[bold red]DIFFERENT[/bold red]"
        table.add_row(line.table, line.sid, rows, f"{line.source.rows:,}", verdict, age)
    console.print()
    console.print(table)
    for sid, count in counts.items():
        console.print(
            f"{sid}: {count.transactions:,} transactions: {count.inserts:,} inserts, {count.updates:,} updates,"
            f" {count.deletes:,} deletes, {count.key_changes:,} key changes",
            highlight=False,
            soft_wrap=True,
        )
    verdict = f"all rows equal {waited:.1f} s after the last change" if all(line.is_equal for line in lines) else (
        f"[bold red]not equal {waited:.1f} s after the last change[/bold red]"
    )  # fmt: skip
    console.print(
        f"{verdict} (this comparison included); the lake stays in ./{lake}", highlight=False, soft_wrap=True
    )
