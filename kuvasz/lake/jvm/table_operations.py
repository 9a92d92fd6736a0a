"""What Java classes need that stand before a table's operations (`org.apache.iceberg.TableOperations`).

After a commit Iceberg reads the metadata file that it has just written: of a table of 2,000 sources a megabyte, and
two fifths of the CPU of the commit. What was committed is at hand, and is what the file says: the operations are
given it, with the name of the file, and their next look at the catalog finds that name. They have no place for that
but their private fields; where these are others, or anything else is not as expected, the file is read as before. So
it is behind other catalogs than those in a database: what a table is may be more there than its file says.
"""

from __future__ import annotations

from typing import Final

#: Methods of such a class, whose field `inner` has the operations.
PASSED_ON: Final = """
  public EncryptionManager encryption() {
    return this.inner.encryption();
  }

  public String metadataFileLocation(String name) {
    return this.inner.metadataFileLocation(name);
  }

  public LocationProvider locationProvider() {
    return this.inner.locationProvider();
  }

  public long newSnapshotId() {
    return this.inner.newSnapshotId();
  }

  public boolean requireStrictCleanup() {
    return this.inner.requireStrictCleanup();
  }
"""

#: The same of a class before a FileIO. Whoever writes it down, for a task of Spark's, has what it stands before.
FILES_PASSED_ON: Final = """
    public Iterable listPrefix(String prefix) {
      return ((SupportsPrefixOperations) this.inner).listPrefix(prefix);
    }

    public void deletePrefix(String prefix) {
      ((SupportsPrefixOperations) this.inner).deletePrefix(prefix);
    }

    public Map properties() {
      return this.inner.properties();
    }

    public void initialize(Map properties) {
      this.inner.initialize(properties);
    }

    public void close() {
      this.inner.close();
    }

    Object writeReplace() {
      return this.inner;
    }
"""

#: A class for such a class, whose file imports what it names. `begin` comes before a commit, `end` behind it in any
#: case, and `keep` where it was made. Iceberg's operations say nowhere what the file is called that they write: they
#: have a FileIO for so long that takes note of it.
WRITTEN: Final = (
    """
  static class Written {
    private final BaseMetastoreTableOperations operations;
    private final Field field;
    private final Noting noting;

    private Written(BaseMetastoreTableOperations operations, Field field, Noting noting) {
      this.operations = operations;
      this.field = field;
      this.noting = noting;
    }

    static Written begin(TableOperations given) {
      try {
        Object operations = given;
        while (operations != null && !(operations instanceof BaseMetastoreTableOperations)) {
          operations = of(operations.getClass(), "inner").get(operations);
        }
        if (!operations.getClass().getName().equals("org.apache.iceberg.jdbc.JdbcTableOperations")) {
          return null;
        }
        Field field = of(operations.getClass(), "fileIO");
        Noting noting = new Noting((FileIO) field.get(operations));
        field.set(operations, noting);
        return new Written((BaseMetastoreTableOperations) operations, field, noting);
      } catch (Exception error) {
        return null;
      }
    }

    void keep(TableMetadata base, TableMetadata made) {
      if (this.noting.files != 1) {
        return;
      }
      try {
        Field metadata = of(BaseMetastoreTableOperations.class, "currentMetadata");
        Field location = of(BaseMetastoreTableOperations.class, "currentMetadataLocation");
        Field version = of(BaseMetastoreTableOperations.class, "version");
        Field isToRefresh = of(BaseMetastoreTableOperations.class, "shouldRefresh");
        if (metadata.get(this.operations) != base) {
          return;
        }
        forget(base.currentSnapshot());
        String file = this.noting.file;
        TableMetadata now = TableMetadata.buildFrom(made).discardChanges().withMetadataLocation(file).build();
        metadata.set(this.operations, now);
        version.setInt(this.operations, this.operations.currentVersion() + 1);
        location.set(this.operations, file);
        isToRefresh.setBoolean(this.operations, false);
      } catch (Exception error) {
        return;
      }
    }

    void end() {
      try {
        this.field.set(this.operations, this.noting.inner);
      } catch (Exception error) {
        return;
      }
    }

    private static void forget(Snapshot snapshot) throws Exception {
      Field[] fields = snapshot == null ? new Field[0] : snapshot.getClass().getDeclaredFields();
      for (int i = 0; i < fields.length; i++) {
        if (fields[i].getType() == List.class && Modifier.isTransient(fields[i].getModifiers())) {
          fields[i].setAccessible(true);
          fields[i].set(snapshot, null);
        }
      }
    }

    private static Field of(Class kind, String name) throws Exception {
      Field field = kind.getDeclaredField(name);
      field.setAccessible(true);
      return field;
    }
  }

  static class Noting implements DelegateFileIO {
    final FileIO inner;
    int files = 0;
    String file;

    Noting(FileIO inner) {
      this.inner = inner;
    }

    public OutputFile newOutputFile(String path) {
      OutputFile file = this.inner.newOutputFile(path);
      if (path.endsWith(".metadata.json")) {
        this.files++;
        this.file = file.location();
      }
      return file;
    }

    public InputFile newInputFile(String path) {
      return this.inner.newInputFile(path);
    }

    public InputFile newInputFile(String path, long length) {
      return this.inner.newInputFile(path, length);
    }

    public void deleteFile(String path) {
      this.inner.deleteFile(path);
    }

    public void deleteFiles(Iterable paths) {
      if (this.inner instanceof SupportsBulkOperations) {
        ((SupportsBulkOperations) this.inner).deleteFiles(paths);
        return;
      }
      for (Iterator i = paths.iterator(); i.hasNext();) {
        this.inner.deleteFile((String) i.next());
      }
    }

"""
    + FILES_PASSED_ON
    + """  }
"""
)

__all__ = ["FILES_PASSED_ON", "PASSED_ON", "WRITTEN"]
