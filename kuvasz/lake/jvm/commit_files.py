"""What commits write to a store: the files of one side by side, and all of them remembered.

Iceberg writes the manifests of a commit one after another, then their list, and before and after that it reads what
the last commit and this one have written: on an object store a dozen round trips, each of which waits for the one
before. The files are small, their names are never given twice, and nobody sees them before the catalog names the
metadata. So whatever a commit writes is kept in memory and read from there, and is on its way to the store while the
next file is made; the catalog is asked only when all of it has arrived. What does not arrive fails the commit before
that. What is remembered is known by its path alone, and no path has two contents: a commit that is made again upon
another base reads what that names.

It goes between Iceberg and its store where anybody may: a `TableOperations` around the table's own, with a `FileIO`
around its own, made anew for each commit, so credentials are those of the moment. (`io-impl` would have to be a
class that Iceberg's own class loader finds: a jar of ours.) One thing has no such place: a metadata file is written
and read by the table's own operations. Their FileIO is exchanged in its private field; where there is none, the
metadata is read again after each commit.

Like `kuvasz.lake.jvm.jvm_calls` the classes are compiled by Janino. Tables of local folders are left alone, and those
that this does not know, with a word in the log.
"""

from __future__ import annotations

import itertools
from typing import Any

from py4j.protocol import Py4JError

from kuvasz.events import Event, EventLog
from kuvasz.lake.format.table_identity import BRANCH_PROPERTY
from kuvasz.lake.jvm.table_operations import FILES_PASSED_ON, PASSED_ON

_log = EventLog(__name__)

#: Bytes that are remembered of all tables together: of a JVM of 1 GB.
_REMEMBERED = 64 << 20

#: A file of more is written as it is made, and is neither kept nor remembered.
_LARGEST = 8 << 20

#: Bytes and files of all commits on their way; whoever brings more writes by himself, one file after another. The
#: client of S3 has 50 connections.
_ON_THEIR_WAY = 32 << 20
_SIDE_BY_SIDE = 32

#: A process that remembers nothing reads so many bytes of manifests at once; of more, what Iceberg asks for.
_AHEAD = 4 << 20

#: py4j remembers methods by the name of the class, so each one that is compiled needs its own.
_NUMBERS = itertools.count(1)

_SOURCE = """
package kuvasz;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.FutureTask;
import java.util.concurrent.Semaphore;
import java.util.concurrent.ThreadFactory;
import org.apache.iceberg.BaseMetastoreTableOperations;
import org.apache.iceberg.BaseTable;
import org.apache.iceberg.ManifestFile;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.TableOperations;
import org.apache.iceberg.encryption.EncryptionManager;
import org.apache.iceberg.encryption.PlaintextEncryptionManager;
import org.apache.iceberg.exceptions.CleanableFailure;
import org.apache.iceberg.exceptions.RuntimeIOException;
import org.apache.iceberg.inmemory.InMemoryInputFile;
import org.apache.iceberg.io.DelegateFileIO;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.io.InputFile;
import org.apache.iceberg.io.LocationProvider;
import org.apache.iceberg.io.OutputFile;
import org.apache.iceberg.io.PositionOutputStream;
import org.apache.iceberg.io.SeekableInputStream;
import org.apache.iceberg.io.SupportsBulkOperations;
import org.apache.iceberg.io.SupportsPrefixOperations;

public class %(name)s {
  private final Memory memory;
  private final Ways ways;
  private final long ahead;

  public %(name)s(long remembered, long largest, long onTheirWay, int sideBySide, long ahead) {
    this.memory = new Memory(remembered, largest);
    this.ways = new Ways(onTheirWay, sideBySide);
    this.ahead = ahead;
  }

  public String why(Table table) {
    if (!(table instanceof BaseTable)) {
      return table.getClass().getName() + " has no operations of its own";
    }
    TableOperations operations = ((BaseTable) table).operations();
    if (!(operations.encryption() instanceof PlaintextEncryptionManager)) {
      return "its files are encrypted";
    }
    boolean isRead = operations instanceof BaseMetastoreTableOperations;
    return isRead && !this.remember(operations) ? "-" + operations.getClass().getName() : "";
  }

  public Table forCommit(Table table) {
    BaseTable base = (BaseTable) table;
    TableOperations operations = base.operations();
    FileIO io = operations.io();
    FileIO inner = io instanceof Files ? ((Files) io).inner : io;
    Operations mine = new Operations(operations, new Files(inner, this.memory, this.ways));
    return new BaseTable(mine, base.name(), base.reporter());
  }

  public void arrive(Table table) {
    ((Files) table.io()).arrive();
  }

  public boolean readAhead(Table table) throws Exception {
    String branch = (String) table.properties().get("%(branch)s");
    Snapshot snapshot = branch == null ? null : table.snapshot(branch);
    if (snapshot == null) {
      snapshot = table.currentSnapshot();
    }
    if (snapshot == null) {
      return true;
    }
    boolean isKnown = this.memory.get(snapshot.manifestListLocation()) != null;
    FileIO io = table.io();
    long bytes = 0;
    List unknown = new ArrayList();
    for (Iterator i = snapshot.allManifests(io).iterator(); i.hasNext();) {
      ManifestFile manifest = (ManifestFile) i.next();
      if (this.memory.get(manifest.path()) == null) {
        bytes += manifest.length();
        unknown.add(new Whole(((Files) io).inner.newInputFile(manifest.path(), manifest.length()), this.memory));
      }
    }
    if (unknown.isEmpty()) {
      return true;
    }
    if (isKnown || bytes > this.ahead) {
      return false;
    }
    List reads = new ArrayList();
    for (Iterator i = unknown.iterator(); i.hasNext();) {
      reads.add(this.ways.begin((Callable) i.next(), 0));
    }
    for (Iterator i = reads.iterator(); i.hasNext();) {
      ((Future) i.next()).get();
    }
    return true;
  }

  private boolean remember(TableOperations operations) {
    boolean isDone = false;
    for (Class kind = operations.getClass(); kind != null; kind = kind.getSuperclass()) {
      Field[] fields = kind.getDeclaredFields();
      for (int i = 0; i < fields.length; i++) {
        if (fields[i].getType() == FileIO.class && !Modifier.isStatic(fields[i].getModifiers())) {
          try {
            fields[i].setAccessible(true);
            Object io = fields[i].get(operations);
            if (io != null && !(io instanceof Files)) {
              fields[i].set(operations, new Files((FileIO) io, this.memory, null));
            }
            isDone = operations.io() instanceof Files;
          } catch (Exception error) {
            isDone = false;
          }
        }
      }
    }
    return isDone;
  }

  static class Ways implements ThreadFactory {
    private final long limit;
    private final Semaphore room;
    private final ExecutorService pool = Executors.newCachedThreadPool(this);
    private final ClassLoader loader = Thread.currentThread().getContextClassLoader();
    private long bytes = 0;

    Ways(long limit, int files) {
      this.limit = limit;
      this.room = new Semaphore(files);
    }

    public Thread newThread(Runnable runnable) {
      Thread thread = new Thread(runnable, "kuvasz-commit-files");
      thread.setDaemon(true);
      thread.setContextClassLoader(this.loader);
      return thread;
    }

    Future begin(final Callable task, final long size) {
      if (!this.takes(size)) {
        FutureTask now = new FutureTask(task);
        now.run();
        return now;
      }
      return this.pool.submit(new Callable() {
        public Object call() throws Exception {
          try {
            return task.call();
          } finally {
            Ways.this.end(size);
          }
        }
      });
    }

    private synchronized boolean takes(long size) {
      if (this.bytes + size > this.limit || !this.room.tryAcquire()) {
        return false;
      }
      this.bytes += size;
      return true;
    }

    private synchronized void end(long size) {
      this.bytes -= size;
      this.room.release();
    }
  }

  public static class NotWritten extends RuntimeException implements CleanableFailure {
    public NotWritten(String message, Throwable cause) {
      super(message, cause);
    }
  }

  static class Memory {
    final long largest;
    private final long limit;
    private long size = 0;
    private final LinkedHashMap contents = new LinkedHashMap(64, 0.75f, true);

    Memory(long limit, long largest) {
      this.limit = limit;
      this.largest = largest;
    }

    synchronized byte[] get(String path) {
      return (byte[]) this.contents.get(path);
    }

    synchronized void put(String path, byte[] content) {
      this.remove(path);
      if (content.length > this.largest) {
        return;
      }
      this.contents.put(path, content);
      this.size += content.length;
      for (Iterator i = this.contents.entrySet().iterator(); this.size > this.limit;) {
        this.size -= ((byte[]) ((Map.Entry) i.next()).getValue()).length;
        i.remove();
      }
    }

    synchronized void remove(String path) {
      byte[] content = (byte[]) this.contents.remove(path);
      if (content != null) {
        this.size -= content.length;
      }
    }
  }

  static class Operations implements TableOperations {
    private final TableOperations inner;
    private final Files files;

    Operations(TableOperations inner, Files files) {
      this.inner = inner;
      this.files = files;
    }

    public TableMetadata current() {
      return this.inner.current();
    }

    public TableMetadata refresh() {
      return this.inner.refresh();
    }

    public void commit(TableMetadata base, TableMetadata metadata) {
      this.files.arrive();
      this.inner.commit(base, metadata);
    }

    public FileIO io() {
      return this.files;
    }

    public TableOperations temp(TableMetadata metadata) {
      return new Operations(this.inner.temp(metadata), this.files);
    }
%(passed_on)s  }

  static class Files implements DelegateFileIO {
    final FileIO inner;
    final Memory memory;
    private final Ways ways;
    private final LinkedHashMap onTheirWay = new LinkedHashMap();

    Files(FileIO inner, Memory memory, Ways ways) {
      this.inner = inner;
      this.memory = memory;
      this.ways = ways;
    }

    public InputFile newInputFile(String path) {
      byte[] known = this.memory.get(path);
      if (known != null) {
        return new InMemoryInputFile(path, known);
      }
      return path.endsWith(".avro") ? new Whole(this.inner.newInputFile(path), this.memory)
          : this.inner.newInputFile(path);
    }

    public InputFile newInputFile(String path, long length) {
      byte[] known = this.memory.get(path);
      if (known != null) {
        return new InMemoryInputFile(path, known);
      }
      return path.endsWith(".avro") && length <= this.memory.largest
          ? new Whole(this.inner.newInputFile(path, length), this.memory)
          : this.inner.newInputFile(path, length);
    }

    public OutputFile newOutputFile(String path) {
      boolean isOfCommits = path.endsWith(".avro") || path.indexOf(".metadata.json") >= 0;
      OutputFile plain = this.inner.newOutputFile(path);
      return isOfCommits ? new Output(plain, this) : plain;
    }

    void write(final OutputFile file, final byte[] content, final boolean replaces) throws IOException {
      Callable task = new Callable() {
        public Object call() throws Exception {
          PositionOutputStream stream = replaces ? file.createOrOverwrite() : file.create();
          try {
            stream.write(content, 0, content.length);
          } finally {
            stream.close();
          }
          return null;
        }
      };
      if (this.ways != null) {
        this.memory.put(file.location(), content);
        Future way = this.ways.begin(task, content.length);
        synchronized (this.onTheirWay) {
          this.onTheirWay.put(file.location(), way);
        }
        return;
      }
      try {
        task.call();
      } catch (RuntimeException error) {
        throw error;
      } catch (Exception error) {
        throw error instanceof IOException ? (IOException) error : new IOException(error);
      }
      this.memory.put(file.location(), content);
    }

    void arrive() {
      Map waited;
      synchronized (this.onTheirWay) {
        waited = new LinkedHashMap(this.onTheirWay);
      }
      Throwable why = null;
      String place = null;
      for (Iterator i = waited.entrySet().iterator(); i.hasNext();) {
        Map.Entry one = (Map.Entry) i.next();
        Throwable failure = failureOf((Future) one.getValue());
        if (failure != null) {
          why = failure;
          place = (String) one.getKey();
        }
      }
      if (why != null) {
        throw new NotWritten("cannot write " + place, why);
      }
      synchronized (this.onTheirWay) {
        this.onTheirWay.keySet().removeAll(waited.keySet());
      }
    }

    private static Throwable failureOf(Future future) {
      try {
        future.get();
        return null;
      } catch (ExecutionException e) {
        return e.getCause();
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
        return e;
      }
    }

    private void forget(String path) {
      Object written;
      synchronized (this.onTheirWay) {
        written = this.onTheirWay.remove(path);
      }
      if (written != null) {
        failureOf((Future) written);
      }
      this.memory.remove(path);
    }

    public void deleteFile(String path) {
      this.forget(path);
      this.inner.deleteFile(path);
    }

    public void deleteFiles(Iterable paths) {
      List known = new ArrayList();
      for (Iterator i = paths.iterator(); i.hasNext();) {
        String path = (String) i.next();
        this.forget(path);
        known.add(path);
      }
      if (this.inner instanceof SupportsBulkOperations) {
        ((SupportsBulkOperations) this.inner).deleteFiles(known);
        return;
      }
      for (Iterator i = known.iterator(); i.hasNext();) {
        this.inner.deleteFile((String) i.next());
      }
    }

%(files_passed_on)s  }

  static class Whole implements InputFile, Callable {
    private final InputFile inner;
    private final Memory memory;
    private byte[] content = null;

    Whole(InputFile inner, Memory memory) {
      this.inner = inner;
      this.memory = memory;
    }

    public synchronized Object call() throws IOException {
      if (this.content == null) {
        InputStream stream = this.inner.newStream();
        try {
          this.content = stream.readAllBytes();
        } finally {
          stream.close();
        }
        this.memory.put(this.inner.location(), this.content);
      }
      return this.content;
    }

    private byte[] read() {
      try {
        return (byte[]) this.call();
      } catch (IOException e) {
        throw new RuntimeIOException(e);
      }
    }

    public long getLength() {
      return this.read().length;
    }

    public SeekableInputStream newStream() {
      return new InMemoryInputFile(this.inner.location(), this.read()).newStream();
    }

    public String location() {
      return this.inner.location();
    }

    public boolean exists() {
      return this.inner.exists();
    }
  }

  static class Output implements OutputFile {
    private final OutputFile plain;
    private final Files files;

    Output(OutputFile plain, Files files) {
      this.plain = plain;
      this.files = files;
    }

    public PositionOutputStream create() {
      return new Sink(this.plain, this.files, false);
    }

    public PositionOutputStream createOrOverwrite() {
      return new Sink(this.plain, this.files, true);
    }

    public String location() {
      return this.plain.location();
    }

    public InputFile toInputFile() {
      return this.files.newInputFile(this.plain.location());
    }
  }

  static class Sink extends PositionOutputStream {
    private final OutputFile file;
    private final Files files;
    private final boolean replaces;
    private ByteArrayOutputStream content = new ByteArrayOutputStream();
    private PositionOutputStream large = null;
    private boolean isClosed = false;

    Sink(OutputFile file, Files files, boolean replaces) {
      this.file = file;
      this.files = files;
      this.replaces = replaces;
    }

    public long getPos() throws IOException {
      return this.large == null ? this.content.size() : this.large.getPos();
    }

    public long storedLength() throws IOException {
      return this.large == null ? this.content.size() : this.large.storedLength();
    }

    public void write(int one) throws IOException {
      this.write(new byte[] {(byte) one}, 0, 1);
    }

    public void write(byte[] some, int offset, int length) throws IOException {
      if (this.large == null && this.content.size() + (long) length > this.files.memory.largest) {
        this.large = this.replaces ? this.file.createOrOverwrite() : this.file.create();
        this.content.writeTo(this.large);
        this.content = null;
      }
      if (this.large == null) {
        this.content.write(some, offset, length);
      } else {
        this.large.write(some, offset, length);
      }
    }

    public void flush() throws IOException {
      if (this.large != null) {
        this.large.flush();
      }
    }

    public void close() throws IOException {
      if (this.isClosed) {
        return;
      }
      this.isClosed = true;
      if (this.large == null) {
        this.files.write(this.file, this.content.toByteArray(), this.replaces);
      } else {
        this.large.close();
      }
    }
  }
}
"""


class CommitFiles:
    """Made by `install`. Safe to use from several threads.

    Args:
        compiled: The Java object.
    """

    def __init__(self, compiled: Any) -> None:  # noqa: ANN401 (a Java object)
        self._compiled = compiled
        self._told: set[str] = set()

    def for_commit(self, name: str, java: Any) -> tuple[Any, bool]:  # noqa: ANN401
        """Return a table to make one commit with, and whether what that reads is in memory.

        Args:
            name: `namespace.table`.
            java: Iceberg's table; returned as it is where nothing is known of how it writes.
        """
        if why := str(self._compiled.why(java)):
            self._tell(name, why)
            if not why.startswith("-"):
                return java, False
        table = self._compiled.forCommit(java)
        return table, bool(self._compiled.readAhead(table))

    def arrive(self, java: Any) -> None:  # noqa: ANN401
        """Wait until the store has all that was written with a table of `for_commit`; any other's is there."""
        if "CommitFiles" in str(java.io().getClass().getName()):
            self._compiled.arrive(java)

    def _tell(self, name: str, why: str) -> None:
        if why not in self._told:
            self._told.add(why)
            reason = f"{why[1:]} reads its metadata anew" if why.startswith("-") else why
            _log.tell(Event.COMMIT_FILES_PLAIN, table=name, reason=reason)


def install(jvm: Any) -> CommitFiles | None:  # noqa: ANN401
    """Compile the classes; None if that cannot be, and commits are made file by file."""
    try:
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
        name = f"CommitFiles{next(_NUMBERS)}"
        passed_on = {"passed_on": PASSED_ON, "files_passed_on": FILES_PASSED_ON}
        compiler.cook(_SOURCE % {"name": name, "branch": BRANCH_PROPERTY, **passed_on})
        made = compiler.getClassLoader().loadClass(f"kuvasz.{name}")
        [constructor] = made.getConstructors()
        long, arguments = jvm.java.lang.Long.valueOf, jvm.java.util.ArrayList()
        for number in (long(_REMEMBERED), long(_LARGEST), long(_ON_THEIR_WAY), _SIDE_BY_SIDE, long(_AHEAD)):
            arguments.add(number)
        return CommitFiles(constructor.newInstance(arguments.toArray()))
    except Py4JError:
        _log.tell(Event.INSIDE_FAILED)
        return None


__all__ = ["CommitFiles", "install"]
