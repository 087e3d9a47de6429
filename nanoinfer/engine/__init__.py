"""The public engine: text in, text out, around the torch-free core."""
