"""The folders of a cluster in the store as `kuvasz check` looks at them: what is written is read and removed."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kuvasz.errors import LakeError
from kuvasz.lake.files import store_access
from kuvasz.lake.files.object_folder import ObjectFolder
from kuvasz.verbs import lakeview

if TYPE_CHECKING:
    from kuvasz.config.model import Config

_FILE: Final = "file://"
_CONTENT: Final = b"kuvasz check"


def prove(config: Config) -> str:
    """Write a small object into the log's folder, list, read and remove it; a folder that is not there is looked at.

    Raises:
        LakeError: One of that cannot be done.
    """
    return _proved(config, "cluster.log", config.cluster.log_location or "")


def prove_indexes(config: Config) -> str:
    """Do the same in the folder of the indexes.

    Raises:
        LakeError: One of that cannot be done.
    """
    return _proved(config, "cluster.indexes", config.indexes_location or "")


def _proved(config: Config, option: str, location: str) -> str:
    if location.startswith(_FILE) and not (folder := Path(location.removeprefix(_FILE))).is_dir():
        lakeview.prove_folder(folder.parent, f"{option}: {folder} cannot be made")
        return "to be made"
    store, name = ObjectFolder(location, store_access.of_lake(config.lake)), f"check-{uuid.uuid4().hex}"
    try:
        store.put(name, _CONTENT)
        is_whole = name in store.names() and store.get(name, 0, len(_CONTENT)) == _CONTENT
    except OSError as error:
        raise _unfit(option, store, str(error)) from error
    finally:
        gone = store.remove([name])
    if not is_whole:
        raise _unfit(option, store, "what was written is not listed, or not what is read")
    if not gone:
        raise _unfit(option, store, f"{name} cannot be removed")
    return "written, listed, read and removed"


def _unfit(option: str, store: ObjectFolder, why: str) -> LakeError:
    hint = f"see that `{option}` is a folder that kuvasz may list, read, write and delete in"
    return LakeError(f"{option}: {store.place}: {why}", hint=hint)


__all__ = ["prove", "prove_indexes"]
