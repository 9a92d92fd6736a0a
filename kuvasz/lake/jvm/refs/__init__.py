"""Names of snapshots: the branch that is written, and its way to readers."""
