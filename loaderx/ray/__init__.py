"""Batches built on a Ray cluster, the same as by a local loader; needs the extra `ray`."""

from .loader import RayLoader as RayLoader
