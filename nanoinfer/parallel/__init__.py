"""One model on several devices, each with a process of its own (tensor parallelism)."""
