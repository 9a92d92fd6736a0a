"""The jars of Iceberg and of the catalogs' drivers: which ones, where they are, and whether they can be had."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pwd
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from kuvasz.config.model import CatalogType, Config
from kuvasz.errors import LakeError
from kuvasz.lake.java import versions

S3_FILE_IO = "org.apache.iceberg.aws.s3.S3FileIO"

#: Where Ivy looks unless it is told otherwise.
_CENTRAL = ("repo1.maven.org", 443)
_ANSWER_S = 5.0

#: Settings that send Ivy somewhere else, and what has Java use a proxy.
_ELSEWHERE = ("spark.jars.ivySettings", "spark.jars.repositories", "spark.jars", "spark.driver.extraClassPath")
_JAVA_OPTIONS = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")

HINT = (
    "they come from Maven Central once: give Java the proxy (SPARK_SUBMIT_OPTS='-Dhttps.proxyHost=…"
    " -Dhttps.proxyPort=…'), name your own repository (spark.conf: spark.jars.ivySettings), or use"
    " the image, which has them"
)


def coordinates(config: Config) -> tuple[str, ...]:
    """Return the Maven coordinates that a configuration needs."""
    needs_aws = is_on_s3(config) or config.lake.type is CatalogType.GLUE
    return versions.CORE + (versions.AWS if needs_aws else ())


def is_on_s3(config: Config) -> bool:
    """Return whether the warehouse is an S3 store."""
    location, chosen = config.lake.warehouse_location, str(config.lake.properties.get("io-impl", ""))
    return location.startswith(("s3://", "s3a://", "s3n://")) or chosen == S3_FILE_IO


def cached(coordinate: str) -> Path | None:
    """Return a jar's file in Ivy's cache; None if it is not there."""
    group, artifact, version = coordinate.split(":")
    name = f"{group}_{artifact}-{version}.jar"
    homes = [Path.home()]
    with contextlib.suppress(KeyError):  # an account without a name, as in some containers
        homes.append(Path(pwd.getpwuid(os.getuid()).pw_dir))  # Java does not go by the variable HOME
    places = [home / cache / "jars" / name for home in homes for cache in (".ivy2.5.2", ".ivy2")]
    return next((place for place in places if place.is_file()), None)


def check(wanted: Sequence[str]) -> None:
    """Compare jars that are there with the digests in `versions`: Ivy trusts what a repository says of itself.

    Raises:
        LakeError: One is another than was tested.
    """
    for coordinate in wanted:
        path = cached(coordinate)
        if path is not None and _digest(path) != versions.SHA256[coordinate]:
            raise LakeError(
                f"the jar {coordinate} is not the one that kuvasz was tested with: its SHA-256 differs",
                hint=f"remove {path} and start again; if it comes again, look at the repository it is from",
            )


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def class_path(wanted: Sequence[str]) -> str:
    """Return the driver's class path, in front of Spark's jars; of what is in Ivy's cache."""
    return os.pathsep.join(str(path) for path in map(cached, wanted) if path is not None)


def settings(wanted: Sequence[str], *, is_local: bool) -> dict[str, str]:
    """Return Spark's settings that bring the jars: from Ivy's cache if all are there, else through Ivy itself."""
    found = [cached(coordinate) for coordinate in wanted]
    if not all(found):
        return {"spark.jars.packages": ",".join(wanted), "spark.jars.excludes": ",".join(versions.EXCLUDED)}
    path = {"spark.driver.extraClassPath": class_path(wanted)}
    # Not spark.jars where it can be spared: that copies all of them at every start.
    return path if is_local else {"spark.jars": ",".join(map(str, found))} | path


def prove(config: Config, environ: Mapping[str, str] = os.environ) -> str:
    """Return where the jars are, or will come from.

    Raises:
        LakeError: They are not there, and Maven Central does not answer.
    """
    missing = [coordinate for coordinate in coordinates(config) if cached(coordinate) is None]
    if not missing:
        return "all there"
    if elsewhere := next((name for name in _ELSEWHERE if name in config.spark.conf), None):
        return f"as {elsewhere} says"
    if any("proxyHost" in environ.get(name, "") for name in _JAVA_OPTIONS):
        return "to be fetched through a proxy"
    try:
        socket.create_connection(_CENTRAL, _ANSWER_S).close()
    except OSError as error:
        names = ", ".join(coordinate.split(":")[1] for coordinate in missing)
        reason = (error.strerror or str(error)).lower()
        raise LakeError(f"the jars {names} are not there, and {_CENTRAL[0]} is not: {reason}", hint=HINT) from error
    return f"to be fetched from {_CENTRAL[0]}"


__all__ = ["HINT", "S3_FILE_IO", "cached", "check", "class_path", "coordinates", "is_on_s3", "prove", "settings"]
