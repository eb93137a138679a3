"""Batch: planned, scheduled, filled and finished."""
