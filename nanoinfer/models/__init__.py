"""Model definitions and checkpoint loading: everything that knows what a Qwen3 looks like."""
