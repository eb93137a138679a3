"""Stream: order of the rows, sampling, remainder policies and checkpoint state."""
