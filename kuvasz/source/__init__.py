"""Everything said to a PostgreSQL source: catalog, publication, slot, snapshot, COPY, stream.

The only package with psycopg.
"""
