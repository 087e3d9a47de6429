"""Triton kernels (Tillet, Kung and Cox, 2019) for NVIDIA GPUs, one idea per file; nothing else imports triton."""
