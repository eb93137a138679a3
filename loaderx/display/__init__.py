"""Display: how objects show themselves in a terminal and in a notebook."""
