"""A tally of kills that outlives the run that made them, so that a run of a thousand may be interrupted."""

from __future__ import annotations

import collections
import fcntl
import json
from pathlib import Path


class CrashTally:
    """The tally of one file: by point, how many kills were followed by a life that ended well.

    Several processes may add to it.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    @property
    def kills(self) -> int:
        """How many there were."""
        return sum(self.points().values())

    def points(self) -> dict[str, int]:
        """Return the kills by point, in the order of their names."""
        return json.loads(self._file.read_text("utf-8"))["points"] if self._file.exists() else {}

    def catalogs(self) -> dict[str, int]:
        """Return the kills by the catalog of their lake; those of earlier tallies are not among them."""
        return json.loads(self._file.read_text("utf-8")).get("catalogs", {}) if self._file.exists() else {}

    def add(self, points: list[str], seed: int, catalog: str) -> None:
        """Add the kills of one life of a lake, all of whose comparisons found nothing lost and nothing doubled."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            found = json.loads(self._file.read_text("utf-8")) if self._file.exists() else {"points": {}, "seeds": []}
            counts = collections.Counter(found["points"]) + collections.Counter(points)
            behind = collections.Counter(found.get("catalogs", {})) + collections.Counter({catalog: len(points)})
            written = {
                "points": dict(sorted(counts.items())),
                "catalogs": dict(sorted(behind.items())),
                "seeds": [*found["seeds"], seed],
            }
            fresh = self._file.with_suffix(".new")
            fresh.write_text(json.dumps(written, indent=1) + "\n", "utf-8")
            fresh.rename(self._file)

    def render(self) -> str:
        """Return it as a table for people."""
        rows = [f"| `{point}` | {count} |" for point, count in self.points().items()]
        behind = [f"| behind {catalog} | {count} |" for catalog, count in self.catalogs().items()]
        return "\n".join(["| killed at | times |", "|---|---|", *rows, f"| in all | {self.kills} |", *behind])


__all__ = ["CrashTally"]
