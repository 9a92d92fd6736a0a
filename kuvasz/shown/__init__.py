"""What people are shown: text of others, made harmless in log lines, errors and on terminals, and numbers."""
