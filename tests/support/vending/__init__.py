"""A REST catalog that lends credentials of seconds, and an S3 store that takes no others."""
