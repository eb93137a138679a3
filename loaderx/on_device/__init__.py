"""The same stream inside jit and scan, over data that lies on the device or comes from the host."""
