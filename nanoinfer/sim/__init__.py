"""The scheduler without a model."""
