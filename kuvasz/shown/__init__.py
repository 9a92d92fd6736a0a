"""Text of others as people may be shown it: names and errors of sources, in log lines, errors and on terminals."""
