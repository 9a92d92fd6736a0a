"""What a lake table looks like: schema, layout, names, and the properties that kuvasz keeps."""
