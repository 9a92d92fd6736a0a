"""Jars as files: what they say of themselves, and `requirements/jars.txt` made of it (`make jar-lock`).

Most jars have a `pom.properties` with their coordinates; one that has none keeps the group that the lock before had
for its artifact. A jar into which others were put (Iceberg's) has a `pom.properties` of each: so the lock says whose
classes are in it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from kuvasz.lake.java import jars, versions
from supply.jar import KUVASZ, KUVASZ_S3, PYSPARK, Jar, read, write

LOCK = Path(__file__).parents[1] / "requirements" / "jars.txt"


def jars_of(file: Path, holder: str, groups: Mapping[str, str]) -> Iterator[Jar]:
    """Yield the jar of a file, then those inside of it.

    Args:
        file: The jar; its name ends with version and classifier.
        holder: Who brings it.
        groups: Artifact -> group, for jars that do not say theirs.

    Raises:
        ValueError: Nothing says which group it is of.
    """
    said = sorted(set(_poms(file)))
    own = _own(file.stem, said) or _known(file.stem, groups)
    if own is None:
        raise ValueError(f"{file.name} does not say its group: write its line into {LOCK.name} by hand, once")
    (group, artifact, version), classifier = own
    with file.open("rb") as stream:
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
    jar = Jar(holder=holder, group=group, artifact=artifact, version=version, classifier=classifier, sha256=sha256)
    yield jar
    for other in said:
        # `unused` is a marker of Spark's build.
        if other != (group, artifact, version) and other[1] != "unused":
            yield Jar(holder=jar.purl, group=other[0], artifact=other[1], version=other[2])


def _poms(file: Path) -> Iterator[tuple[str, str, str]]:
    with zipfile.ZipFile(file) as archive:
        for name in archive.namelist():
            if name.startswith("META-INF/maven/") and name.endswith("/pom.properties"):
                lines = archive.read(name).decode("utf-8", "replace").splitlines()
                said = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
                found = tuple(said.get(key, "").strip() for key in ("groupId", "artifactId", "version"))
                if all(found):
                    yield found[0], found[1], found[2]


def _own(stem: str, said: Iterable[tuple[str, str, str]]) -> tuple[tuple[str, str, str], str] | None:
    """Return those coordinates that the file is named after, with the classifier."""
    named = [one for one in said if stem == f"{one[1]}-{one[2]}" or stem.startswith(f"{one[1]}-{one[2]}-")]
    best = max(named, key=lambda one: len(one[1]) + len(one[2]), default=None)
    return best and (best, stem.removeprefix(f"{best[1]}-{best[2]}").removeprefix("-"))


def _known(stem: str, groups: Mapping[str, str]) -> tuple[tuple[str, str, str], str] | None:
    """Return coordinates by the name of the file alone: the version begins with a digit."""
    named = [one for one in groups if stem.startswith(f"{one}-") and stem[len(one) + 1].isdigit()]
    if not named:
        return None
    best = max(named, key=len)
    return (groups[best], best, stem[len(best) + 1 :]), ""


def of_spark() -> list[Path]:
    """Return the jars that are in pyspark's wheel."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return sorted((Path(spec.origin).parent / "jars").rglob("*.jar"))


def of_kuvasz(coordinates: Iterable[str], holder: str) -> Iterator[Jar]:
    """Yield the jars that kuvasz names, and those inside of them.

    Raises:
        ValueError: One was not fetched.
    """
    for coordinate in coordinates:
        group, artifact, version = coordinate.split(":")
        file = jars.cached(coordinate)
        if file is None:
            raise ValueError(f"{coordinate} is not there: python -m kuvasz.lake.iceberg.prefetch --aws brings it")
        first, *inside = jars_of(file, holder, {f"{group}_{artifact}": group})
        jar = Jar(holder=holder, group=group, artifact=artifact, version=version, sha256=first.sha256)
        yield jar
        for other in inside:
            if other.coordinate != coordinate:
                yield Jar(holder=jar.purl, group=other.group, artifact=other.artifact, version=other.version)


def main() -> None:
    """Write the lock."""
    before = read(LOCK.read_text("utf-8")) if LOCK.exists() else ()
    groups = {jar.artifact: jar.group for jar in before if not jar.is_inside}
    found = {*of_kuvasz(versions.CORE, KUVASZ), *of_kuvasz(versions.AWS, KUVASZ_S3)}
    try:
        found |= {jar for file in of_spark() for jar in jars_of(file, PYSPARK, groups)}
    except ValueError as error:
        sys.exit(f"error: {error}")
    LOCK.write_text(write(found), "utf-8")


if __name__ == "__main__":
    main()


__all__ = ["jars_of", "main", "of_kuvasz", "of_spark"]
