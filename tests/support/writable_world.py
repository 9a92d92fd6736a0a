"""A small application whose map a client may change; it stands still, and notes what it is to take over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kuvasz.app import App
from kuvasz.config.load import load
from kuvasz.config.written.map_file import MapFile
from kuvasz.config.written.map_store import NOTHING, MapStore
from kuvasz.errors import MapBusy
from kuvasz.lake.memory.lake import MemoryLake
from kuvasz.sync.rules.map_difference import MapDifference
from tests.support.admin_world import AdminWorld

MAP = """\
# the shops
lake: {namespace: shop, uri: "jdbc:sqlite:LAKE.db", warehouse: LAKE}
pipeline: {state: STATE}
server: {address: "127.0.0.1:0"}
map: {writable: WRITABLE}
databases:
- database: shop   # of all countries
  urls:
  - {url: "postgresql://repl:${PW}@eu1/shop", sid: eu}  # Frankfurt
  - url: postgresql://us1/shop
    sid: us
  tables:
    items:    # all of them
    others: {filter: "a > 1"}  # of others
# the end
"""


class WritableWorld(AdminWorld):
    """The application.

    Args:
        folder: Its files.
        is_writable: Whether the API may change its map.
        store: Where the map is, which has none yet; a file by default.
    """

    def __init__(self, folder: Path, *, is_writable: bool = True, store: MapStore | None = None) -> None:
        super().__init__(folder)
        self.file = folder / "map.yaml"
        text = MAP.replace("STATE", str(folder / "state")).replace("WRITABLE", str(is_writable).lower())
        text = text.replace("LAKE", str(folder / "lake"))
        self.file.write_text(text)
        self.store = MapFile(self.file) if store is None else store
        if store is not None:
            store.exchange(text, NOTHING)
        self.loaded = load(self.store, {"PW": "a-secret"})
        self.app = App(self.loaded.config, lake=MemoryLake())
        self.stand_still()
        self.taken: list[MapDifference] = []
        self.dropping: list[bool | None] = []  #: whether slots of sources that leave go, of each
        self.busy: MapBusy | None = None
        app: Any = self.app
        app.take_over = self._take_over
        app.refuse_if_changing = self._refuse
        app.ask_lake = lambda _: None

    @property
    def text(self) -> str:
        """What the map is now."""
        return self.store.raw().decode()

    def _refuse(self) -> None:
        if self.busy is not None:
            raise self.busy

    def _take_over(self, found: MapDifference, *, may_drop: bool | None = None) -> None:
        self.dropping.append(may_drop)
        self.app.config = found.config
        self.loaded = load(self.store)
        self.taken.append(found)
