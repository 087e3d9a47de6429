"""From a step plan to sampled tokens: the only package, beside `models`, that runs torch."""
