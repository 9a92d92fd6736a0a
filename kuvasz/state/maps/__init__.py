"""Maps that are kept in a database, for fleets whose tenants come and go by program."""
