"""What Java classes pass on that stand before a table's operations (`org.apache.iceberg.TableOperations`)."""

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

__all__ = ["PASSED_ON"]
