"""Batch: planner, scheduler, buffers and builder."""
