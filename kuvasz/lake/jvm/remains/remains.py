"""What one table still has of rows that are gone: snapshots, entries of manifests, metadata, files that nobody needs.

A row that was deleted stands in files of older snapshots, the smallest and greatest values of a file that was removed
stand in the manifest that says so, and both stand in metadata files that name them. Whoever erases takes all of it.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kuvasz.errors import LakeError, place_of
from kuvasz.lake.format.schema import SID

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kuvasz.lake.jvm.table_handle import TableHandle

#: The branch that is the table.
_MAIN: Final = "main"

_LOG_LENGTH: Final = "write.metadata.previous-versions-max"

#: py4j remembers methods by the name of the class, so each one that is compiled needs its own.
_NUMBERS = itertools.count(1)

_SOURCE = """
package kuvasz;

public class Together%d implements java.util.function.Function {
    public Object apply(Object file) {
        return "";
    }
}
"""


class Remains:
    """The remains of one table, to which nobody commits meanwhile."""

    def __init__(self, handle: TableHandle) -> None:
        self._handle = handle

    # What names snapshots

    def names(self) -> list[str]:
        """Return the tags and branches that keep snapshots, besides the table's own branch."""
        with self._handle.changing():
            self._handle.java.refresh()
            return sorted(str(name) for name in self._handle.java.refs() if str(name) != _MAIN)

    def drop_names(self) -> None:
        """Remove all of these."""
        for name in self.names():
            with self._handle.changing():
                manage = self._handle.java.manageSnapshots()
                is_branch = bool(self._handle.java.refs().get(name).isBranch())
                (manage.removeBranch if is_branch else manage.removeTag)(name).commit()

    def snapshots(self) -> list[int]:
        """Return the ids of all snapshots."""
        with self._handle.changing():
            self._handle.java.refresh()
            known = self._handle.java.operations().current().snapshots()
            return [int(known.get(place).snapshotId()) for place in range(known.size())]

    def has_summary(self, entry: str, value: str) -> bool:
        """Whether a snapshot that is still there says so in its summary."""
        with self._handle.asking():
            known = self._handle.java.operations().current().snapshots()
            return any(known.get(place).summary().get(entry) == value for place in range(known.size()))

    # What metadata has

    def metadata(self) -> str:
        """Return where the metadata is that the catalog has now: another place after any commit; empty: unknown."""
        with self._handle.changing():
            self._handle.java.refresh()
            return str(self._handle.java.operations().current().metadataFileLocation() or "")

    def metadata_files(self) -> set[str]:
        """Return the names of the metadata files that the table knows of: that of now, and those before it."""
        with self._handle.asking():
            paths = self._metadata_files(self._handle.to_read().operations().current())
            return {path.rpartition("/")[2] for path in paths if path}

    @staticmethod
    def _metadata_files(now: Any) -> set[str]:  # noqa: ANN401 (Java metadata)
        return {str(now.metadataFileLocation() or ""), *(str(entry.file()) for entry in now.previousFiles())}

    def rewrite_manifests(self, summary: Mapping[str, str]) -> None:
        """Write all manifests anew, so that they know of no file but those that are there.

        The empty snapshot after it leaves out manifests that would be empty, as those of delete files.
        """
        with self._handle.changing():
            self._handle.renew()
            java = self._handle.java
            if java.currentSnapshot() is None:
                return
            java.rewriteManifests().clusterBy(self._together()).commit()
            java.refresh()
            append = java.newAppend()
            for key, value in summary.items():
                append.set(key, value)
            append.commit()

    def _together(self) -> Any:  # noqa: ANN401 (a Java object)
        """Return the function by which all files are of one kind."""
        jvm, number = self._handle.classes.jvm, next(_NUMBERS)
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
        compiler.cook(_SOURCE % number)
        return compiler.getClassLoader().loadClass(f"kuvasz.Together{number}").newInstance()

    def drop_statistics(self) -> None:
        """Forget statistics: they may have been worked out with rows that are gone."""
        with self._handle.changing():
            java = self._handle.java
            java.refresh()
            for number in [int(file.snapshotId()) for file in java.statisticsFiles()]:
                java.updateStatistics().removeStatistics(number).commit()
            for number in [int(file.snapshotId()) for file in java.partitionStatisticsFiles()]:
                java.updatePartitionStatistics().removePartitionStatistics(number).commit()

    def forget_metadata(self) -> None:
        """Have the table know of no metadata file that is older than this call."""
        with self._handle.changing():
            java = self._handle.java
            java.refresh()
            before = java.properties().get(_LOG_LENGTH)
            java.updateProperties().set(_LOG_LENGTH, "1").commit()
            java.refresh()
            update = java.updateProperties()
            (update.remove(_LOG_LENGTH) if before is None else update.set(_LOG_LENGTH, before)).commit()
            java.refresh()

    def deleted_entries(self) -> int:
        """Return how many entries of manifests are about files that were removed."""
        with self._handle.asking():
            return sum(int(manifest.deletedFilesCount() or 0) for manifest in self._manifests())

    def _manifests(self) -> Iterator[Any]:
        java = self._handle.to_read()
        known = java.operations().current().snapshots()
        for place in range(known.size()):
            found = known.get(place).allManifests(java.io())
            yield from (found.get(number) for number in range(found.size()))

    # What lies in its folders

    def listed(self) -> dict[str, str]:
        """Return all files in the folders of data and metadata: name -> path. Only of this table are there any."""
        with self._handle.asking():
            java = self._handle.to_read()
            properties, location = java.properties(), str(java.location())
            found: dict[str, str] = {}
            for kind in ("data", "metadata"):
                folder = str(properties.get(f"write.{kind}.path") or f"{location}/{kind}").rstrip("/") + "/"
                if self._handle.is_local and not Path(_local(folder)).is_dir():
                    continue
                files = java.io().listPrefix(folder).iterator()
                while files.hasNext():
                    path = str(files.next().location())
                    found[path.rpartition("/")[2]] = path
            # Some stores list folders, and a catalog of folders says in a file which metadata is the newest.
            return {name: path for name, path in found.items() if name not in {"", "version-hint.text"}}

    def known(self) -> set[str]:
        """Return the names of the files that the table needs as it is now, of each kind."""
        with self._handle.asking():
            java = self._handle.to_read()
            now = java.operations().current()
            paths = self._metadata_files(now)
            for snapshot in now.snapshots():
                paths.add(str(snapshot.manifestListLocation() or ""))
            paths |= {str(manifest.path()) for manifest in self._manifests()}
            paths |= {str(file.path()) for kind in (java.statisticsFiles(), java.partitionStatisticsFiles())
                      for file in kind}  # fmt: skip
            for _, data, deletes in self._handle.classes.calls.files(java, SID):
                paths |= {data["file-path"], *(delete["file-path"] for delete in deletes)}
            return {path.rpartition("/")[2] for path in paths if path}

    def remove(self, paths: Iterable[str]) -> None:
        """Remove files that the table does not need.

        Raises:
            LakeError: The store refuses it.
        """
        with self._handle.asking():
            io = self._handle.to_read().io()
            for path in paths:
                io.deleteFile(path)
                if self._handle.is_local and Path(_local(path)).exists():
                    raise LakeError(
                        f"{place_of(table=self._handle.name)}: {path} cannot be removed",
                        hint="let kuvasz remove files there, and begin again: it goes on where it was",
                    )


def _local(path: str) -> str:
    return "/" + path.removeprefix("file:").lstrip("/")


__all__ = ["Remains"]
