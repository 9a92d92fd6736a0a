"""What the metadata of a table still has of rows that are gone."""
