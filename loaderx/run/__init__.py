"""Run of a loader: its iterator and the threads that build ahead of it."""
