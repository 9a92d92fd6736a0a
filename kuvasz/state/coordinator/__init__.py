"""The state store of a cluster, in PostgreSQL: who replicates, and what is remembered of sources and tables.

Whoever replicates holds the cluster's *lease*, whose number grows each time it changes hands. Every write names that
number, and the database refuses one that is not of now: a process that slept through its lease changes nothing.
"""
