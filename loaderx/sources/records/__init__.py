"""ArrayRecord files: reading and writing."""
