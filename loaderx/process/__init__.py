"""Process: CPU cores, threads and shutdown."""
