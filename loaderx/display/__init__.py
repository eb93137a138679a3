"""Display: repr and HTML representations of objects."""
