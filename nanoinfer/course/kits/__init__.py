"""What the graded tests are written with: a module for each assignment that needs one, and two that they share.

`requests` has prompts, limits and random workloads, `reference` compares a run with nanoinfer's own.
"""
