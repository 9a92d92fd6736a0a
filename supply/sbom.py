"""The bill of materials of the image and the wheel, as CycloneDX 1.6 in JSON: `make sbom`.

Made from the locks alone, so that it is the same wherever it is made: the same locks give the same bytes. What Debian
brings into the image is not in it: the base image is pinned, and a scanner reads what was installed.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import tomllib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, Property, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from supply import jar, package
from supply.jar import PYSPARK, Jar
from supply.package import Package

ROOT = Path(__file__).parents[1]

#: The locks that the image is installed from; the wheel asks for what is in the first.
LOCKS = ("run", "build")
#: A serial number is made of this and the content.
_NAMESPACE = uuid.UUID("6f0f5b52-5b1c-5c4e-9d0a-3f5a1f0c8b11")


def bill(root: Path, made_at: datetime.datetime | None = None) -> str:
    """Return the bill of materials.

    Args:
        root: Where pyproject.toml and requirements/ are.
        made_at: What it says of its time; nothing by default, so that the same content is the same text.
    """
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    folder = root / "requirements"
    packages = {one: locks for one, locks in package.of_folder(folder).items() if set(locks) & set(LOCKS)}
    jars = jar.read((folder / "jars.txt").read_text("utf-8"))
    texts = [(folder / name).read_text("utf-8") for name in (*(f"{lock}.lock" for lock in LOCKS), "jars.txt")]
    made = _bom(_kuvasz(project), packages, jars)
    made.serial_number = uuid.uuid5(_NAMESPACE, "\0".join([project["version"], *texts]))
    document = json.loads(JsonV1Dot6(made).output_as_string())
    document["metadata"].pop("timestamp")
    if made_at is not None:
        document["metadata"]["timestamp"] = made_at.astimezone(datetime.UTC).isoformat()
    return json.dumps(document, indent=2, sort_keys=True) + "\n"


def _bom(kuvasz: Component, packages: Mapping[Package, Sequence[str]], jars: Sequence[Jar]) -> Bom:
    made = Bom()
    made.metadata.component = kuvasz
    components = {one.purl: _of_package(one, locks) for one, locks in packages.items()}
    components |= {purl: _of_jar(purl, jars) for purl in sorted({one.purl for one in jars})}
    made.components.update(components.values())
    needs: dict[str, list[Component]] = {purl: [] for purl in components}
    for one in packages:
        parents = [other.purl for other in packages if other.name in one.needed_by]
        for parent in parents:
            needs[parent].append(components[one.purl])
    for one_jar in jars:
        if one_jar.is_inside:
            needs[one_jar.holder].append(components[one_jar.purl])
    of_spark = [components[one.purl] for one in jars if one.holder == PYSPARK]
    for purl, found in needs.items():
        made.register_dependency(components[purl], found + (of_spark if purl.startswith("pkg:pypi/pyspark@") else []))
    direct = [components[one.purl] for one in packages if "kuvasz" in one.needed_by or not one.needed_by]
    direct += [components[one.purl] for one in jars if not one.is_inside and one.holder != PYSPARK]
    made.register_dependency(kuvasz, direct)
    return made


def _kuvasz(project: Mapping[str, str]) -> Component:
    name, version = project["name"], project["version"]
    purl = PackageURL("pypi", None, name, version)
    return Component(
        type=ComponentType.APPLICATION, name=name, version=version, purl=purl, bom_ref=str(purl),
        description=project["description"],
    )  # fmt: skip


def _of_package(one: Package, locks: Sequence[str]) -> Component:
    """Return a Python package; its hashes are those of all files of the release, of which one is installed."""
    files = ExternalReference(
        type=ExternalReferenceType.DISTRIBUTION,
        url=XsUri(one.purl),
        comment="the hashes of all files of the release: one of them is installed",
        hashes=_hashes(one.hashes),
    )
    properties = [Property(name="kuvasz:lock", value=lock) for lock in locks if lock in LOCKS]
    if one.marker:
        properties.append(Property(name="kuvasz:marker", value=one.marker))
    return Component(
        type=ComponentType.LIBRARY, name=one.name, version=one.version, bom_ref=one.purl,
        purl=PackageURL.from_string(one.purl), external_references=[files], properties=properties,
    )  # fmt: skip


def _of_jar(purl: str, jars: Iterable[Jar]) -> Component:
    """Return a jar, which may be delivered as it is, lie in others, or both."""
    same = [one for one in jars if one.purl == purl]
    where = [Property(name="kuvasz:inside" if one.is_inside else "kuvasz:of", value=one.holder) for one in same]
    return Component(
        type=ComponentType.LIBRARY, group=same[0].group, name=same[0].artifact, version=same[0].version, bom_ref=purl,
        purl=PackageURL.from_string(purl), properties=where,
        hashes=_hashes({one.sha256 for one in same if one.sha256}),
    )  # fmt: skip


def _hashes(digests: Iterable[str]) -> list[HashType]:
    return [HashType(alg=HashAlgorithm.SHA_256, content=digest) for digest in sorted(digests)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the bill to the file that the command line names; `SOURCE_DATE_EPOCH` has it say a time."""
    parser = argparse.ArgumentParser(description="the bill of materials of kuvasz, as CycloneDX JSON")
    parser.add_argument("file", type=Path)
    chosen = parser.parse_args(arguments)
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    chosen.file.parent.mkdir(parents=True, exist_ok=True)
    made_at = None if epoch is None else datetime.datetime.fromtimestamp(int(epoch), datetime.UTC)
    chosen.file.write_text(bill(ROOT, made_at), "utf-8")
    print(chosen.file)


if __name__ == "__main__":
    main()


__all__ = ["LOCKS", "bill", "main"]
