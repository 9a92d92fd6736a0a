"""``kuvasz support``: one archive for a bug report, without secrets and without values of rows. One part per file."""
