"""Peers in environments of their own: one worker per peer, which speaks JSON lines."""
