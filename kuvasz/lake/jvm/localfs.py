"""A local file system for the driver's JVM that writes Iceberg's metadata without starting processes.

Hadoop's local file system runs the program ``chmod`` for every file it creates, and writes a second file with
checksums beside it: twelve processes a commit. The class below leaves both out: files get the permissions of the
process's umask, as with any program. It is compiled by Janino, which Spark brings for its own generated code, so
that kuvasz needs no jar of its own.

Executors, and stores that are not local, are not touched.
"""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JError

from kuvasz.events import Event, EventLog

_log = EventLog(__name__)

_NAME = "kuvasz.PlainLocalFileSystem"

_SOURCE = """
package kuvasz;

public class PlainLocalFileSystem extends org.apache.hadoop.fs.LocalFileSystem {
  public PlainLocalFileSystem() {
    super(new org.apache.hadoop.fs.RawLocalFileSystem() {
      public void setPermission(
          org.apache.hadoop.fs.Path path, org.apache.hadoop.fs.permission.FsPermission permission) {
      }
    });
    setWriteChecksum(false);
  }

  public void setPermission(
      org.apache.hadoop.fs.Path path, org.apache.hadoop.fs.permission.FsPermission permission) {
  }
}
"""


def install(jvm: Any, hadoop: Any) -> bool:  # noqa: ANN401 (Java objects)
    """Put the file system into Hadoop's cache, where Iceberg's HadoopFileIO finds it.

    Returns:
        Whether it is in place; otherwise everything works as before, slower.
    """
    try:
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
        compiler.cook(_SOURCE)
        loader = compiler.getClassLoader()
        configuration = jvm.org.apache.hadoop.conf.Configuration(hadoop)
        configuration.setClassLoader(loader)
        configuration.set("fs.file.impl", _NAME)
        local = jvm.java.net.URI("file:///")
        # The cache keeps the first one made: Spark's own start made one already.
        jvm.org.apache.hadoop.fs.FileSystem.get(local, hadoop).close()
        made = jvm.org.apache.hadoop.fs.FileSystem.get(local, configuration)
        return str(made.getClass().getName()) == _NAME
    except Py4JError:
        _log.tell(Event.LOCALFS_FAILED)
        return False
