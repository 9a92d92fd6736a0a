"""What runs on Spark's executors, and how jobs get there."""
