"""The pre-flight: everything that replication will need of a server, looked at before anything is touched."""
