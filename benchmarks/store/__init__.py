"""An object store to measure on: an emulator of S3, behind a proxy that takes its time and notes every request."""
