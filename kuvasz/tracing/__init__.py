"""Traces of mini-transactions for OpenTelemetry: where the time goes from a change's arrival to its confirmation."""
