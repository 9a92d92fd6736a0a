"""What a first start has to fetch, and each start to load, beforehand.

`python -m kuvasz.lake.iceberg.prefetch [--aws]`, for images, which start without a network, and for `make`. The jars
come into Ivy's cache, an archive of the JVM's classes into the Python environment (`kuvasz.lake.java.class_archive`);
without the archive a start takes longer, and is right.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kuvasz.config.load import load
from kuvasz.lake.iceberg.engine import Engine
from kuvasz.lake.java import jars, versions
from kuvasz.lake.java.class_archive import archive_of, option_to_make
from kuvasz.lake.jvm import spark

#: Of a start on a slow disk, and of writing 130 MB.
_SECONDS = 300.0


def prefetch(*, with_aws: bool) -> None:
    """Fetch the jars, and make an archive for each class path that they are for."""
    chosen = [versions.CORE, versions.CORE + versions.AWS] if with_aws else [versions.CORE]
    spark.fetch(chosen[-1])
    for coordinates in chosen:
        _archive(jars.class_path(coordinates))


def rehearse(class_path: str) -> None:
    """Start Spark with an empty lake, do what each start does, and end its JVM as it ends by itself."""
    with tempfile.TemporaryDirectory(prefix="kuvasz-prefetch-") as name:
        folder = Path(name)
        file = folder / "map.json"
        file.write_text(json.dumps(_map(folder, class_path)), encoding="utf-8")
        engine = Engine(load(file, {}).config)
        engine.open()
        engine.warm_up()
        gateway = engine.session.sparkContext._gateway
        engine.close()
        assert gateway is not None
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(_SECONDS)


def _map(folder: Path, class_path: str) -> dict[str, object]:
    return {
        "lake": {"warehouse": str(folder / "lake")},
        "pipeline": {"state": str(folder)},
        "spark": {"master": "local[1]", "conf": {"spark.driver.extraClassPath": class_path}},
        "databases": [{"database": "none", "urls": [{"url": "postgresql:///none"}], "tables": {"none": None}}],
    }


def _archive(class_path: str) -> None:
    """Make an archive, unless it is there: in a JVM of its own, for it is written when that ends."""
    archive = archive_of(class_path)
    if archive.is_file():
        return
    made = archive.with_suffix(f".{os.getpid()}")
    command = [sys.executable, "-m", __spec__.name, "--rehearse", class_path]
    options = f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} {option_to_make(made)}".strip()
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        environment = os.environ | {"SPARK_SUBMIT_OPTS": options}
        subprocess.run(command, env=environment, check=True, timeout=_SECONDS, capture_output=True)
        for old in archive.parent.glob("classes-*.jsa"):
            if not _is_wanted(old):
                old.unlink()
        made.rename(archive)
    except (OSError, subprocess.SubprocessError) as error:
        made.unlink(missing_ok=True)
        print(f"no archive of classes was made, so a start takes longer: {error}", file=sys.stderr)  # noqa: T201


def _is_wanted(archive: Path) -> bool:
    paths = [jars.class_path(coordinates) for coordinates in (versions.CORE, versions.CORE + versions.AWS)]
    return archive in [archive_of(path) for path in paths]


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description="fetch the jars of kuvasz, and have a start load them faster")
    parser.add_argument("--aws", action="store_true", help="also those for warehouses on S3, and Glue")
    parser.add_argument("--rehearse", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.rehearse is not None:
        rehearse(chosen.rehearse)
    else:
        prefetch(with_aws=chosen.aws)


if __name__ == "__main__":
    main()


__all__ = ["main", "prefetch", "rehearse"]
