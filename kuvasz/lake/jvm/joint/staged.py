"""The Java class of a commit of one table that is written, and that nothing shows yet.

It goes between a transaction of Iceberg's and the operations of its table, and keeps what it is given to commit. A
catalog that keeps places of metadata files has that file be written here; one that is told what changes writes it.
"""

from __future__ import annotations

from kuvasz.lake.jvm.table_operations import PASSED_ON

JAVA = (
    """
public class Staged implements TableOperations {
  private final TableOperations inner;
  private final Table table;
  private final boolean isFile;
  private boolean isFresh;
  TableMetadata base;
  TableMetadata made;
  String place;

  public Staged(Table table, boolean isFile) {
    this.table = table;
    this.isFile = isFile;
    this.inner = ((HasTableOperations) table).operations();
  }

  public Transaction begin() {
    return Transactions.newTransaction(this.table.name(), this);
  }

  public TableMetadata current() {
    return this.made == null ? this.inner.current() : this.made;
  }

  public TableMetadata refresh() {
    if (this.made == null && !this.isFresh) {
      this.isFresh = true;
      return this.inner.refresh();
    }
    return this.current();
  }

  public void commit(TableMetadata base, TableMetadata metadata) {
    this.base = base;
    this.made = metadata;
  }

  public FileIO io() {
    return this.inner.io();
  }

  public TableOperations temp(TableMetadata metadata) {
    return this.inner.temp(metadata);
  }
"""
    + PASSED_ON
    + """
  public TableMetadata look() {
    return this.inner.refresh();
  }

  public void write() {
    if (!this.isFile) {
      return;
    }
    String codec = this.made.property("write.metadata.compression-codec", "none");
    String before = this.base.metadataFileLocation();
    String name = before.substring(before.lastIndexOf('/') + 1);
    int dash = name.indexOf('-');
    int version = 0;
    try {
      version = Integer.parseInt(name.substring(0, Math.max(dash, 0))) + 1;
    } catch (NumberFormatException error) {
      version = 0;
    }
    String number = String.valueOf(version);
    while (number.length() < 5) {
      number = "0" + number;
    }
    String file = number + "-" + UUID.randomUUID() + TableMetadataParser.getFileExtension(codec);
    this.place = this.inner.metadataFileLocation(file);
    TableMetadataParser.overwrite(this.made, this.io().newOutputFile(this.place));
  }

  public void tidy() {
    if (this.isFile && this.made != this.base) {
      CatalogUtil.deleteRemovedMetadataFiles(this.io(), this.base, this.made);
    }
  }

  public void drop() {
    if (this.made == null || this.made == this.base) {
      return;
    }
    Set before = new HashSet();
    for (Iterator i = this.base.snapshots().iterator(); i.hasNext();) {
      before.add(Long.valueOf(((Snapshot) i.next()).snapshotId()));
    }
    for (Iterator i = this.made.snapshots().iterator(); i.hasNext();) {
      Snapshot snapshot = (Snapshot) i.next();
      if (!before.contains(Long.valueOf(snapshot.snapshotId()))) {
        for (Iterator j = snapshot.allManifests(this.io()).iterator(); j.hasNext();) {
          ManifestFile manifest = (ManifestFile) j.next();
          if (manifest.snapshotId() != null && manifest.snapshotId().longValue() == snapshot.snapshotId()) {
            this.io().deleteFile(manifest.path());
          }
        }
        this.io().deleteFile(snapshot.manifestListLocation());
      }
    }
    if (this.place != null) {
      this.io().deleteFile(this.place);
    }
  }
}
"""
)

__all__ = ["JAVA"]
