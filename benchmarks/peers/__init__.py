"""Peers in environments of their own: one worker per peer, which answers JSON lines."""
