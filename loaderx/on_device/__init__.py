"""On device: the stream of a DataLoader inside jit and scan, over data on the device or from the host."""
