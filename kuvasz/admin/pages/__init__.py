"""What people see in a browser: the fleet, one source, one table, with what they may have done about it."""
