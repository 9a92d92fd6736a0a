"""The archive of classes that a start maps into the JVM, instead of reading and proving those of the jars again.

The JVM's own: dynamic class data sharing, JEP 350. An archive belongs to one class path, one Spark and one Java, and
to the jars as they were; its name is made of all that. One that does not fit the JVM refuses in silence, and starts
as it does without.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from pathlib import Path

import pyspark

_SILENT = "-Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off"


def archive_of(class_path: str) -> Path:
    """Return where the archive for a class path is, or would be: in the Python environment that has this Spark.

    Not beside the jars, which all environments of a user share: Spark's own jars are on the class path, too.

    Args:
        class_path: The driver's class path, in front of Spark's own jars.
    """
    java = _java()
    release = java / "release"
    jars = [Path(jar) for jar in class_path.split(os.pathsep)] + [_spark() / "jars"]
    facts = *map(_fact, jars), str(java), release.read_text() if release.is_file() else ""
    name = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
    return Path(sys.prefix) / "share" / "kuvasz" / f"classes-{name}.jsa"


def _fact(path: Path) -> str:
    """Return what the JVM compares of a jar, in whole seconds; a folder's are of the last jar that came or went."""
    if not path.exists():
        return str(path)
    found = path.stat()
    return f"{path} {int(found.st_mtime)} {found.st_size if path.is_file() else ''}"


def _spark() -> Path:
    """Return the home of the Spark that is started."""
    return Path(os.environ.get("SPARK_HOME") or pyspark.__path__[0])


def _java() -> Path:
    """Return the home of the Java that Spark starts; of none, a path that is none."""
    home = os.environ.get("JAVA_HOME")
    return Path(home).resolve() if home else Path(shutil.which("java") or "/none/bin/java").resolve().parents[1]


def option_to_use(archive: Path) -> str:
    """Return the JVM's options to start with an archive."""
    return f"-XX:SharedArchiveFile={archive} {_SILENT}"


def option_to_make(archive: Path) -> str:
    """Return the JVM's options to write all classes it has loaded into an archive when it ends."""
    return f"-XX:ArchiveClassesAtExit={archive} {_SILENT}"


__all__ = ["archive_of", "option_to_make", "option_to_use"]
