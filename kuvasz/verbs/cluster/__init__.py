"""Several processes with one map: what one of them does until its turn comes, and who they are."""
