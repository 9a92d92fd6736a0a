"""Where the staged changes of each source are, and how far it is staged: the index of a cluster's log."""
