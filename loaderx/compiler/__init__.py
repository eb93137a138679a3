"""Compiler: chains of transforms -> tables of compiled passes, cached on disk."""
