"""What a start needs of its machine and its lake, in one list: a start proves them, and so does `kuvasz check`."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kuvasz.config.model import CatalogType
from kuvasz.errors import LakeError
from kuvasz.lake.files.file_io import file_io, is_plain
from kuvasz.lake.files.folder_files import path_of
from kuvasz.lake.java import jars, region, runtime

if TYPE_CHECKING:
    from kuvasz.config.model import Config


#: What is written into a warehouse to see whether it can be.
_PROBE: Final = b"kuvasz"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One condition of a start."""

    name: str
    needed: str
    prove: Callable[[Config], str]  #: returns what was found; raises an error of ours that says what is missing


#: Before Spark starts, in the order in which a start meets them.
BEFORE_SPARK = (
    Condition(name="java", needed=f"{runtime.OLDEST} or later", prove=lambda _: runtime.prove()),
    Condition(name="jars", needed="there, or to be had", prove=jars.prove),
    Condition(name="region", needed="known, for S3 and Glue", prove=region.prove),
)


#: Catalogs and stores that kuvasz has an option for, and that no test of it ran with.
_UNTRIED_CATALOGS = (CatalogType.HIVE, CatalogType.GLUE)
_UNTRIED_STORES = ("gs://", "abfs://", "abfss://", "wasb://", "wasbs://")


def untried(config: Config) -> list[str]:
    """Return what of a lake kuvasz was never run with."""
    lake = config.lake
    found = [f"a {lake.type.value} catalog"] if lake.type in _UNTRIED_CATALOGS else []
    scheme = next((one for one in _UNTRIED_STORES if lake.warehouse.startswith(one)), None)
    return found if scheme is None else [*found, f"a warehouse on {scheme}"]


def prove_before_spark(config: Config) -> None:
    """Prove what Spark needs to start.

    Raises:
        KuvaszError: The first that is not so.
    """
    for condition in BEFORE_SPARK:
        condition.prove(config)


def prove_warehouse(config: Config) -> None:
    """Write a file into the warehouse and delete it again.

    Not where the catalog lends the credentials: those are of its tables. A cluster's spool is in the warehouse still.

    Raises:
        LakeError: It cannot be written.
    """
    if config.lake.vends_credentials and config.spark.is_local:
        return
    location = f"{config.lake.warehouse_location}/_kuvasz_probe_{uuid.uuid4().hex}"
    try:
        if is_plain(config.lake.properties, location):
            probe = Path(path_of(location))
            probe.parent.mkdir(parents=True, exist_ok=True)
            probe.write_bytes(_PROBE)
            probe.unlink()
            return
        io = file_io(config.lake.live_properties, location)
        with io.new_output(location).create() as stream:
            stream.write(_PROBE)
        io.delete(location)
    except Exception as error:
        message = f"the warehouse {config.lake.warehouse_location} cannot be written: {error}"
        raise LakeError(message, hint="check `lake.warehouse`, `lake.properties` and the permissions") from error


__all__ = ["BEFORE_SPARK", "Condition", "prove_before_spark", "prove_warehouse", "untried"]
