"""The files of Iceberg tables looked after, for whoever asks the lake."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from typing_extensions import override

from kuvasz.errors import LakeError, place_of
from kuvasz.lake.maintenance.maintenance import Maintainer
from kuvasz.ports import Maintenance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kuvasz.config.model import Config
    from kuvasz.lake.iceberg.engine import Engine
    from kuvasz.lake.iceberg.tables import Tables
    from kuvasz.lake.table.table import LakeTable
    from kuvasz.ports import Upkeep


class IcebergMaintenance(Maintenance):
    """See `kuvasz.ports.Maintenance`.

    Args:
        config: The whole configuration.
        engine: Does the work, once it is open.
        tables: The tables of the lake.
        others: Gives further ones, which are nobody's targets: they are looked after, and not shown.
    """

    def __init__(
        self, config: Config, engine: Engine, tables: Tables, others: Callable[[], Sequence[LakeTable]] = tuple
    ) -> None:
        self._config = config
        self._engine = engine
        self._tables = tables
        self._others = others
        self.maintainer: Maintainer | None = None  #: once it was started

    def start(self) -> None:
        """Look after the tables from now on; whoever starts twice gets one maintainer."""
        if self.maintainer is None:
            self.maintainer = Maintainer(
                self._config.maintenance,
                self._engine.catalog,
                self._engine.jobs,
                lambda: [*self._tables.all(), *self._others()],
                self._engine.readers.job,
                self._config.pipeline.state_folder,
            )
            self.maintainer.start()

    def stop(self) -> None:
        """End soon."""
        if self.maintainer is not None:
            self.maintainer.stop()

    @contextlib.contextmanager
    def without(self, target: str) -> Iterator[None]:
        """Look after no table while the body runs, and not after one from then on, unless it is loaded again."""
        with contextlib.nullcontext() if self.maintainer is None else self.maintainer.without(target):
            yield

    @override
    def upkeep(self) -> Mapping[str, Upkeep]:
        """See `kuvasz.ports.Maintenance.upkeep`."""
        found = {} if self.maintainer is None else self.maintainer.upkeep()
        return {name: upkeep for name, upkeep in found.items() if self._tables.get(name) is not None}

    @override
    def run(self, target: str, *, full: bool) -> Upkeep:
        """See `kuvasz.ports.Maintenance.run`."""
        table = self._tables.get(target)
        if table is None or self.maintainer is None:
            raise _not_loaded(target)

        def refuse() -> None:
            if self._tables.get(target) is not table:
                raise _not_loaded(target)

        return self.maintainer.run(table, full=full, refuse=refuse)


def _not_loaded(target: str) -> LakeError:
    message = f"{place_of(table=target)}: it is not loaded, so its files cannot be looked after"
    hint = "see `kuvasz status`: it has not begun yet, is in error, or another process has it"
    return LakeError(message, hint=hint)


__all__ = ["IcebergMaintenance"]
