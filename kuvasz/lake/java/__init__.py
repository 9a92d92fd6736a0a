"""What Spark's JVM needs to start, Java, jars and AWS's region, and what it says."""
