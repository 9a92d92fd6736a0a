"""The command line: one small function per verb, exit codes from `kuvasz.errors`."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer
import uvloop

from kuvasz import __version__, log
from kuvasz.config import load
from kuvasz.config.load import Loaded
from kuvasz.errors import KuvaszError

app = typer.Typer(add_completion=False, no_args_is_help=False, pretty_exceptions_enable=False, rich_markup_mode=None)

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="The map file.", envvar="KUVASZ_CONFIG", show_default=False),
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="An option: pipeline.workers=4.", show_default=False)
]


@app.callback(invoke_without_command=True)
def run(
    context: typer.Context,
    config: ConfigOption = None,
    settings: SetOption = None,
    log_format: Annotated[str, typer.Option("--log", help="auto, plain or json.")] = "auto",
    until_caught_up: Annotated[
        bool, typer.Option("--until-caught-up", help="End when everything the sources have now is in the lake.")
    ] = False,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    """Replicate PostgreSQL databases into an Iceberg lake until stopped."""
    if version:
        print(f"kuvasz {__version__}")
        raise typer.Exit
    context.obj = (config, settings)
    if context.invoked_subcommand is not None:
        return
    loaded = _load(config, settings)
    log.set_up(log_format, loaded.secrets)
    raise typer.Exit(uvloop.run(_replicate(loaded, until_caught_up=until_caught_up, log_format=log_format)))


async def _replicate(loaded: Loaded, *, until_caught_up: bool, log_format: str) -> int:
    from kuvasz.app import App
    from kuvasz.console import show

    application = App(loaded.config, until_caught_up=until_caught_up)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, application.stop)
    async with show(application, is_live=log.is_live(log_format)):
        return await application.run()


def _load(config: Path | None, settings: list[str] | None) -> Loaded:
    overrides = {}
    for text in settings or []:
        name, _, value = text.partition("=")
        overrides[name] = value
    return load.load(config, None, overrides)


def main() -> None:
    """Run the command line; errors of ours end with their message and exit code."""
    try:
        app()
    except KuvaszError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except BaseExceptionGroup as group:
        found = _ours(group)
        if found is None:
            raise
        print(f"error: {found}", file=sys.stderr)
        sys.exit(found.exit_code)


def _ours(group: BaseExceptionGroup) -> KuvaszError | None:
    for error in group.exceptions:
        if isinstance(error, KuvaszError):
            return error
        if isinstance(error, BaseExceptionGroup) and (inner := _ours(error)) is not None:
            return inner
    return None
