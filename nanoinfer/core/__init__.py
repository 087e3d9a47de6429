"""Scheduling without a model: sequences, blocks, policies and the step loop. Imports no torch."""
