"""Process: its cores, its threads, its end."""
