"""The files of a table: data, deletes, and what the driver knows of them."""
