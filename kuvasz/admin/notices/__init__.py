"""What webhooks are told of (`notify`): commits of tables, and what happens."""
