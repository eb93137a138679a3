"""Chains of transforms -> one compiled function per field, cached on disk."""
