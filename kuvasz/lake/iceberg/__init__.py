"""The lake of production: Spark writes the files, Iceberg commits them. Implements `kuvasz.ports.Lake`."""
