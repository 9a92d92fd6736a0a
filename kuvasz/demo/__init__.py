"""The demo: embedded PostgreSQL servers with live load, so that kuvasz can be seen at work on one machine."""
