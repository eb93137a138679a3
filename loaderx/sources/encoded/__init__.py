"""Encoded images: rows of bytes that a chain of transforms decodes."""
