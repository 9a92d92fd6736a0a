"""Raw bytes of stream and COPY into columns: pure, and the same on driver and executors."""
