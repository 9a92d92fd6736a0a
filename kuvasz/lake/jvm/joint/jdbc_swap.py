"""The Java classes that show staged commits in a JDBC catalog: one SQL transaction over the rows of all tables.

It exchanges the place of every table's metadata, each only if it is what the commit stands upon, or none. It uses the
catalog's own connections, for SQLite has one writer; one of which nobody knows whether its transaction has ended is
closed, because to make it commit by itself again would commit what was left. A PostgreSQL server ends one that says
nothing for long: whoever takes over from a process that sleeps, or from a machine that is gone, waits for its rows.
"""

from __future__ import annotations

JAVA = """
class JdbcSwap implements Exchange {
  private final ClientPool pool;
  private final String catalog;

  JdbcSwap(Object catalog, String name) throws Exception {
    Field field = catalog.getClass().getDeclaredField("connections");
    field.setAccessible(true);
    this.pool = (ClientPool) field.get(catalog);
    this.catalog = name;
  }

  public boolean isFile() {
    return true;
  }

  public List swap(List names, List staged) throws Exception {
    return (List) this.pool.run(new Swap(this.catalog, names, staged));
  }
}

class Swap implements ClientPool.Action {
  private static final String SQL =
      "UPDATE iceberg_tables SET metadata_location = ?, previous_metadata_location = ?"
      + " WHERE catalog_name = ? AND table_namespace = ? AND table_name = ? AND metadata_location = ?";
  private static final String PATIENCE = "SET LOCAL idle_in_transaction_session_timeout = '10s'";
  private final String catalog;
  private final List names;
  private final List staged;

  Swap(String catalog, List names, List staged) {
    this.catalog = catalog;
    this.names = names;
    this.staged = staged;
  }

  public Object run(Object client) throws Exception {
    Connection connection = (Connection) client;
    connection.setAutoCommit(false);
    boolean isSent = false;
    boolean isEnded = false;
    try {
      List moved = this.exchange(connection);
      if (moved.isEmpty()) {
        isSent = true;
        connection.commit();
      } else {
        connection.rollback();
      }
      isEnded = true;
      return moved;
    } catch (Exception error) {
      try {
        connection.rollback();
        isEnded = true;
      } catch (SQLException other) {
        error.addSuppressed(other);
      }
      if (isSent) {
        throw new CommitStateUnknownException(error);
      }
      throw error;
    } finally {
      if (isEnded) {
        connection.setAutoCommit(true);
      } else {
        connection.close();
      }
    }
  }

  private List exchange(Connection connection) throws SQLException {
    List moved = new ArrayList();
    if ("PostgreSQL".equals(connection.getMetaData().getDatabaseProductName())) {
      Statement patience = connection.createStatement();
      try {
        patience.execute(PATIENCE);
      } finally {
        patience.close();
      }
    }
    PreparedStatement update = connection.prepareStatement(SQL);
    try {
      for (int i = 0; i < this.staged.size(); i++) {
        Staged one = (Staged) this.staged.get(i);
        TableIdentifier name = (TableIdentifier) this.names.get(i);
        update.setString(1, one.place);
        update.setString(2, one.base.metadataFileLocation());
        update.setString(3, this.catalog);
        update.setString(4, name.namespace().toString());
        update.setString(5, name.name());
        update.setString(6, one.base.metadataFileLocation());
        if (update.executeUpdate() != 1) {
          moved.add(name.toString());
        }
      }
    } finally {
      update.close();
    }
    return moved;
  }
}
"""

__all__ = ["JAVA"]
