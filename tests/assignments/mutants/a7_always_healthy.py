"""Finds nothing, ever.

Hint: Add up num_scheduled over the rows of a prefill step; the row that goes over the limit is the one.
"""


def diagnose(trace, suspects):
    return None
