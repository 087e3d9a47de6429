"""From a step plan to sampled tokens: inputs, KV cache, attention backends, CUDA graphs, sampling."""
