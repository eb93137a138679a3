"""Cache of compiled XLA programs for the tests on the device: half of their time."""

import hashlib

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache
from llvmlite import binding

from tests.conftest import CACHE

SETTINGS = {
    "jax_persistent_cache_min_compile_time_secs": 0.05,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}


@pytest.fixture(scope="package", autouse=True)
def cache_of_xla():
    """Keep compiled programs for the next run on this processor."""
    processor = f"{binding.get_host_cpu_name()} {binding.get_host_cpu_features().flatten()}"
    folder = CACHE / "xla" / hashlib.sha256(processor.encode()).hexdigest()[:16]
    settings = {"jax_compilation_cache_dir": str(folder), **SETTINGS}
    before = {name: getattr(jax.config, name) for name in settings}
    for name, value in settings.items():
        jax.config.update(name, value)
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
