"""A copy that goes on from the files of one that was cut off.

What these say of keys that were touched since is left out, wherever it is, and the rows of such keys are read anew by
their values: the two together are what the new snapshot shows. See `kuvasz.sync.tables.copy_ledgers`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kuvasz import __version__
from kuvasz.errors import DecodeError, LakeError, SchemaError, place_of
from kuvasz.fold.keys import Keys
from kuvasz.lake.copies.changed_keys import ChangedKeys
from kuvasz.lake.files.data_file import DataFile
from kuvasz.lake.files.file_io import file_io
from kuvasz.lake.table.readers import Readers
from kuvasz.model import Truncation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kuvasz.lake.copies.order import Order
    from kuvasz.lake.files.key_file import KeyFiles
    from kuvasz.modes.shape import Shape
    from kuvasz.ports import CopyLedger, CopyRequest, EarlierParts

#: Keys beyond which to read all anew is taken for cheaper.
MOST_KEYS: Final = 2_000_000

#: Keys whose rows are read by one request.
_KEYS_OF_ONE: Final = 20_000

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFiles:
    """What was made of one part of a copy."""

    files: tuple[DataFile, ...]
    rejected: Mapping[str, int]  #: source -> rows that were left out, which are written down

    def render(self) -> str:
        """Return what `parse` reads."""
        files = [dataclasses.asdict(file) for file in self.files]
        return json.dumps({"files": files, "rejected": dict(self.rejected)})

    @classmethod
    def parse(cls, text: str) -> WrittenFiles:
        """Return what was rendered.

        Raises:
            ValueError, KeyError, TypeError: It is something else.
        """
        found = json.loads(text)
        return cls(files=tuple(map(_file, found["files"])), rejected=dict(found["rejected"]))


def paths_in(text: str) -> list[str]:
    """Return the paths of what was made of a part; none if nothing can be told of it."""
    try:
        return [file.path for file in WrittenFiles.parse(text).files]
    except (ValueError, KeyError, TypeError):
        return []


def _file(found: Mapping[str, Any]) -> DataFile:
    sids = None if found["sids"] is None else tuple(found["sids"])
    return DataFile(**{**found, "partition": tuple(found["partition"]), "sids": sids})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EarlierFiles:
    """What a copy has when it begins."""

    made: Mapping[int, WrittenFiles]  #: number of a request that need not be read -> its files, whose keys are kept
    touched: Keys  #: whose rows count nowhere, ascending
    again: Sequence[CopyRequest]  #: read the rows that such keys have


#: Nothing was there before.
FROM_NOTHING: Final = EarlierFiles(made={}, touched=Keys.empty(), again=())


class Resumption:
    """The beginning of one copy with a ledger, of a clone with a key. Use once.

    Args:
        order: What is copied.
        shape: What the rows look like.
        keys: Where the keys of files are kept.
        known_files: Returns the names of all files that any snapshot of the table knows.
    """

    def __init__(self, order: Order, shape: Shape, keys: KeyFiles, known_files: Callable[[], set[str]]) -> None:
        self._order = order
        self._shape = shape
        self._keys = keys
        self._known_files = known_files
        self._made_for = made_for(order, shape)

    def begin(self, ledger: CopyLedger) -> EarlierFiles:
        """Go on from what the ledger has, if that is of use, or begin with nothing.

        Raises:
            KuvaszError: The source, the store or a job failed: it may be tried again.
        """
        earlier = ledger.earlier
        found = "" if earlier is None else self._resumed(earlier)
        if isinstance(found, EarlierFiles):
            ledger.go_on(len(found.touched))
            return found
        ledger.begin(self._made_for, found)
        return FROM_NOTHING

    def _resumed(self, earlier: EarlierParts) -> EarlierFiles | str:
        """Return what can be used, or why nothing can."""
        if earlier.made_for != self._made_for:
            return "its files were made for another table, map or version of kuvasz"
        try:
            made = {number: WrittenFiles.parse(text) for number, text in earlier.parts.items()}
        except (ValueError, KeyError, TypeError):
            return "its ledger cannot be read"
        files = [file for one in made.values() for file in one.files]
        if why := self._why_not(files):
            return why
        touched = self._touched(earlier)
        if isinstance(touched, str):
            return touched
        self._read_keys(files)
        names = [self._order.relation.columns[self._shape.bindings[index].column].name for index in self._shape.key]
        again = [earlier.look_up(names, rows) for rows in touched.rows(_KEYS_OF_ONE)]
        return EarlierFiles(made=made, touched=touched.keys, again=again)

    def _why_not(self, files: Iterable[DataFile]) -> str:
        """Say why files are not there as they were left; empty if they are."""
        known = self._known_files()
        for file in files:
            if file.path.rpartition("/")[2] in known:
                return "its files are in the table"  # a state folder from before that came back
            try:
                size = len(file_io(self._order.properties, file.path).new_input(file.path))
            except FileNotFoundError:
                return "not all of its files are there"
            except Exception as error:  # each store has errors of its own
                message = f"{place_of(table=self._order.table.name)}: cannot look at {file.path}: {error}"
                raise LakeError(message, hint="check the warehouse; it is tried again") from error
            if size != file.size:
                return "not all of its files are whole"
        return ""

    def _touched(self, earlier: EarlierParts) -> ChangedKeys | str:
        """Return the keys that changed since, or why they are not known."""
        order, shapes = self._order, self._order.table.columns.shapes
        touched = ChangedKeys(lambda relation: shapes.of_now(order.feed, relation))
        try:
            for change in earlier.changes:
                if isinstance(change, Truncation):
                    return "the table was truncated"
                touched.add(change)
                if touched.most > MOST_KEYS:
                    return f"more than {MOST_KEYS} of its rows have changed"
        except (DecodeError, SchemaError) as error:
            return f"what has changed cannot be told: {error.message}"
        return touched

    def _read_keys(self, files: Sequence[DataFile]) -> None:
        reader = Readers(self._order.jobs, self._order.properties).of(self._order.table.definition)
        numbered = [(number, file.path) for number, file in enumerate(files)]
        if self._keys.is_sorted and reader.keep(numbered, [file.rows for file in files], self._keys):
            return
        for number, keys in reader.keys(numbered):
            self._keys.write(files[number].path, keys)


def can_resume(shape: Shape) -> bool:
    """Whether keys of rows can be told from what the stream says of them alone, and may be asked for.

    What is asked for goes to Spark in a file, as the source writes it: a key that is masked may not.
    """
    key = [shape.bindings[index] for index in shape.key]
    return bool(key) and all(one.column >= 0 and one.mask is None for one in key)


def made_for(order: Order, shape: Shape) -> str:
    """Return what files are made for that this copy writes: what others were made for is of no use to it."""
    definition = order.table.definition
    facts = (
        __version__, definition.uuid, definition.location, definition.seed, tuple(definition.bounded),
        definition.layout, shape, shape.schema.serialize().to_pybytes(), hashlib.sha256(shape.mask_secret).digest(),
        _life(definition.location),
    )  # fmt: skip
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def _life(location: str) -> str:
    """Return what is another one after a crash of the machine, for files that it may have lost then."""
    if "://" in location and not location.startswith("file:"):
        return ""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


__all__ = [
    "FROM_NOTHING",
    "MOST_KEYS",
    "EarlierFiles",
    "Resumption",
    "WrittenFiles",
    "can_resume",
    "made_for",
    "paths_in",
]
