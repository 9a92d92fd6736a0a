"""What is asked of branches over HTTP: that main shows what they have."""
