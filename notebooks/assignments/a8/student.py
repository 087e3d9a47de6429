"""Assignment 8: paged attention, first in PyTorch, then in Triton.

A token's keys and values lie in a physical slot, and a block table says where. Attention for one new token of each
sequence reads them from there. Without a GPU, Triton's interpreter runs your kernel on the CPU: slowly, and you can
print from it.
"""

import torch
from torch import Tensor

from nanoinfer.kernels.interpreter import triton_interpreter

if not torch.cuda.is_available():
    triton_interpreter()  # before triton is imported

import triton
import triton.language as tl

TILE = 16  # tokens that the kernel reads at a time


def token_slots(block_table: Tensor, context_len: int, block_size: int) -> Tensor:
    """Physical slots of tokens 0 to context_len - 1 of one sequence: int64 [context_len].

    Args:
        block_table: int32 [max_blocks]; entries past the context may hold anything.
        context_len: tokens of the sequence.
        block_size: slots of a block.
    """
    # YOUR CODE HERE
    raise NotImplementedError("to be written")


def store_kv(key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slots: Tensor) -> None:
    """Write the keys and values of new tokens into their slots, in place.

    Args:
        key: [tokens, kv_heads, head_dim].
        value: like key.
        key_cache: [num_slots, kv_heads, head_dim].
        value_cache: like key_cache.
        slots: int64 [tokens]; -1 marks padding, which is written nowhere.
    """
    # YOUR CODE HERE
    raise NotImplementedError("to be written")


def paged_attention(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    context_lens: Tensor,
    block_size: int,
    scale: float,
) -> Tensor:
    """softmax(query . keys * scale) . values for each row and head, in PyTorch; a loop over the rows is fine.

    Query head h reads kv head h // (heads // kv_heads). Scores and sums are taken in float32.

    Args:
        query: [rows, heads, head_dim].
        key_cache: [num_slots, kv_heads, head_dim]; slots of no context may hold anything.
        value_cache: like key_cache.
        block_tables: int32 [rows, max_blocks]; entries past a context may hold anything.
        context_lens: int32 [rows]: tokens that a row sees, its own included; 0 gives a row of zeros.
        block_size: slots of a block.
        scale: of the dot products.

    Returns:
        A new tensor [rows, heads, head_dim] of the query's dtype.
    """
    # YOUR CODE HERE
    raise NotImplementedError("to be written")


def paged_attention_triton(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    context_lens: Tensor,
    block_size: int,
    scale: float,
) -> Tensor:
    """The same by a Triton kernel: torch makes the output tensor and launches, and computes nothing.

    `query` is contiguous; the caches are contiguous within a slot, but their slots may be further apart: see
    `Tensor.stride`. `head_dim` is a power of two.
    """
    # YOUR CODE HERE
    raise NotImplementedError("to be written")


# Helpers of your own go here.
