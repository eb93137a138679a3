"""ArrayRecord files: reader and writer."""
