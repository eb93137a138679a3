"""Benchmarks of loaderx against NumPy, against the memory of the machine and against its peers."""
