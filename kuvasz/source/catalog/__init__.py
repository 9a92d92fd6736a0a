"""What PostgreSQL's catalog says of tables, their columns, partitions and publications."""
