"""Erasures asked for by HTTP: noted, carried out while nothing replicates, and told of."""
