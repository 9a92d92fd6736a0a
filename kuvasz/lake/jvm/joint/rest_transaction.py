"""The Java classes that show staged commits in a REST catalog: one request that names what changes in each table.

The server commits all of it or nothing (`POST /v1/{prefix}/transactions/commit` of the REST specification). What has
to hold of a table is what Iceberg asks for the same changes alone, and besides that the branch which is written
stands where it did: a commit of properties asks for nothing else, and one that comes late would undo a newer one's.

Few answers say that nothing was changed. A conflict does not always: whoever sends a request again, Iceberg's client
or a gateway, meets what the first one did. So the tables are looked at, before files are removed that one may name.

A client that is given no table says whether the server lists the request, and asks nothing; see `joint_commits` of
`kuvasz.lake.iceberg` for those that list nothing.
"""

from __future__ import annotations

JAVA = """
class RestTransaction implements Exchange {
  private final RESTCatalog catalog;

  RestTransaction(RESTCatalog catalog) {
    this.catalog = catalog;
  }

  String why() {
    try {
      this.catalog.commitTransaction(new ArrayList());
    } catch (UnsupportedOperationException error) {
      return error.getMessage();
    } catch (IllegalArgumentException error) {
      return null;
    }
    return null;
  }

  public boolean isFile() {
    return false;
  }

  public List swap(List names, List staged) {
    List changes = new ArrayList();
    for (int i = 0; i < staged.size(); i++) {
      changes.add(new Change((TableIdentifier) names.get(i), (Staged) staged.get(i)));
    }
    try {
      this.catalog.commitTransaction(changes);
      return new ArrayList();
    } catch (CommitFailedException error) {
      return this.moved(names, staged, error);
    } catch (NoSuchTableException error) {
      return this.moved(names, staged, error);
    } catch (BadRequestException error) {
      throw error;
    } catch (NotAuthorizedException error) {
      throw error;
    } catch (ForbiddenException error) {
      throw error;
    } catch (UnsupportedOperationException error) {
      throw new RESTException(error, "%%s", new Object[] {error.getMessage()});
    } catch (CommitStateUnknownException error) {
      throw error;
    } catch (RuntimeException error) {
      throw new CommitStateUnknownException(error);
    }
  }

  private List moved(List names, List staged, RuntimeException refusal) {
    List all = new ArrayList();
    List moved = new ArrayList();
    boolean isThere = false;
    for (int i = 0; i < staged.size(); i++) {
      Staged one = (Staged) staged.get(i);
      String name = names.get(i).toString();
      all.add(name);
      try {
        TableMetadata now = one.look();
        isThere = isThere || Change.isIn(one, now);
        if (!String.valueOf(now.metadataFileLocation()).equals(one.base.metadataFileLocation())) {
          moved.add(name);
        }
      } catch (NoSuchTableException error) {
        moved.add(name);
      } catch (RuntimeException error) {
        error.addSuppressed(refusal);
        throw new CommitStateUnknownException(error);
      }
    }
    if (isThere) {
      throw new CommitStateUnknownException(refusal);
    }
    if (moved.isEmpty() && refusal instanceof NoSuchTableException) {
      throw new RESTException(refusal, "%%s", new Object[] {refusal.getMessage()});
    }
    return moved.isEmpty() ? all : moved;
  }
}

class Change implements TableCommit {
  private final TableIdentifier name;
  private final Staged staged;

  Change(TableIdentifier name, Staged staged) {
    this.name = name;
    this.staged = staged;
  }

  public TableIdentifier identifier() {
    return this.name;
  }

  public List updates() {
    return this.staged.made.changes();
  }

  public List requirements() {
    TableMetadata base = this.staged.base;
    List found = new ArrayList(UpdateRequirements.forUpdateTable(base, this.staged.made.changes()));
    String branch = (String) base.properties().get("%(branch)s");
    String name = branch == null ? SnapshotRef.MAIN_BRANCH : branch;
    for (Iterator i = found.iterator(); i.hasNext();) {
      Object one = i.next();
      if (one instanceof UpdateRequirement.AssertRefSnapshotID
          && ((UpdateRequirement.AssertRefSnapshotID) one).refName().equals(name)) {
        return found;
      }
    }
    SnapshotRef ref = (SnapshotRef) base.refs().get(name);
    found.add(new UpdateRequirement.AssertRefSnapshotID(name, ref == null ? null : Long.valueOf(ref.snapshotId())));
    return found;
  }

  static boolean isIn(Staged staged, TableMetadata now) {
    for (Iterator i = staged.made.changes().iterator(); i.hasNext();) {
      Object one = i.next();
      if (one instanceof MetadataUpdate.AddSnapshot) {
        return now.snapshot(((MetadataUpdate.AddSnapshot) one).snapshot().snapshotId()) != null;
      }
    }
    for (Iterator i = staged.made.changes().iterator(); i.hasNext();) {
      Object one = i.next();
      if (one instanceof MetadataUpdate.SetProperties) {
        return now.properties().entrySet().containsAll(((MetadataUpdate.SetProperties) one).updated().entrySet());
      }
    }
    return false;
  }
}
"""

__all__ = ["JAVA"]
