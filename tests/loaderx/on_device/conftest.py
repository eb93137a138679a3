"""A setting of XLA for tests on the device."""

import jax
import pytest


@pytest.fixture
def unoptimised():
    """Have XLA compile programs as they are: to optimise those that run for a moment takes longer than to run them."""
    setting = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", setting)
