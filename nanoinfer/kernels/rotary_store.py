"""Everything between the projection of q, k and v and their attention, in one pass over them.

Per-head RMSNorm of queries and keys, rotary position embedding (Su et al., 2021, half-split layout), and the write of
keys and values to their cache slots. One program takes one token's kv head and the query heads that share it.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from nanoinfer.kernels.dependent_launch import LAUNCH, wait_for_predecessor


def norm_rope_store(
    qkv: Tensor,
    q_weight: Tensor,
    k_weight: Tensor,
    eps: float,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor,
    slot_mapping: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
) -> None:
    """Normalise and rotate q and k in place, and write k and v to the cache. Results are rounded after the norm and
    after the rotation; inside, both are float32.

    Args:
        qkv: [tokens, (heads + 2 * kv_heads) * head_dim], contiguous along columns: q, then k, then v; changed.
        q_weight: [head_dim], of the norm of queries.
        k_weight: [head_dim], of the norm of keys.
        eps: of both norms.
        cos: float32 [max_positions, head_dim / 2], or head_dim columns of which the second half is used.
        sin: like cos; its second half has no sign.
        positions: integers [tokens]: each token's row of the tables.
        slot_mapping: integers [tokens]: where keys and values go; a negative slot writes nowhere.
        key_cache: [num_slots, kv_heads, head_dim], contiguous within a slot; changed.
        value_cache: like key_cache, with its own slot stride; changed.
    """
    kv_heads, head_dim = key_cache.shape[1:]
    group = qkv.shape[1] // head_dim // kv_heads - 2
    half = head_dim // 2
    _norm_rope_store[(qkv.shape[0], kv_heads)](
        qkv,
        q_weight,
        k_weight,
        eps,
        cos[:, -half:],
        sin[:, -half:],
        positions,
        slot_mapping,
        key_cache,
        value_cache,
        qkv.stride(0),
        cos.stride(0),
        sin.stride(0),
        key_cache.stride(0),
        value_cache.stride(0),
        group,
        triton.next_power_of_2(group),
        half,
        triton.next_power_of_2(half),
        num_warps=1,
        **LAUNCH,
    )


@triton.jit(do_not_specialize_on_alignment=["positions_ptr", "slots_ptr"])
def _norm_rope_store(
    qkv_ptr: tl.tensor,
    q_weight_ptr: tl.tensor,
    k_weight_ptr: tl.tensor,
    eps: float,
    cos_ptr: tl.tensor,
    sin_ptr: tl.tensor,
    positions_ptr: tl.tensor,
    slots_ptr: tl.tensor,
    key_cache_ptr: tl.tensor,
    value_cache_ptr: tl.tensor,
    qkv_stride: int,
    cos_stride: int,
    sin_stride: int,
    key_stride: int,
    value_stride: int,
    GROUP: tl.constexpr,
    GROUP_BLOCK: tl.constexpr,
    HALF: tl.constexpr,
    HALF_BLOCK: tl.constexpr,
) -> None:
    token, kv_head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    kv_heads = tl.num_programs(1)
    wait_for_predecessor()
    slot = tl.load(slots_ptr + token).to(tl.int64)
    position = tl.load(positions_ptr + token).to(tl.int64)
    columns = tl.arange(0, HALF_BLOCK)[None, :]
    inside = columns < HALF
    cos = tl.load(cos_ptr + position * cos_stride + columns, mask=inside, other=0.0)
    sin = tl.load(sin_ptr + position * sin_stride + columns, mask=inside, other=0.0)
    row_ptr = qkv_ptr + token * qkv_stride

    heads = tl.arange(0, GROUP_BLOCK)[:, None]
    q_places = row_ptr + (kv_head * GROUP + heads) * (2 * HALF) + columns
    q_inside = inside & (heads < GROUP)
    first, second = _norm_and_rotate(q_places, q_inside, q_weight_ptr + columns, inside, eps, cos, sin, HALF)
    tl.store(q_places, first, mask=q_inside)
    tl.store(q_places + HALF, second, mask=q_inside)

    k_places = row_ptr + (kv_heads * GROUP + kv_head) * (2 * HALF) + columns
    first, second = _norm_and_rotate(k_places, inside, k_weight_ptr + columns, inside, eps, cos, sin, HALF)
    tl.store(k_places, first, mask=inside)
    tl.store(k_places + HALF, second, mask=inside)

    if slot >= 0:
        key_places = key_cache_ptr + slot * key_stride + kv_head * (2 * HALF) + columns
        tl.store(key_places, first, mask=inside)
        tl.store(key_places + HALF, second, mask=inside)
        v_places = k_places + kv_heads * (2 * HALF)
        value_places = value_cache_ptr + slot * value_stride + kv_head * (2 * HALF) + columns
        tl.store(value_places, tl.load(v_places, mask=inside), mask=inside)
        tl.store(value_places + HALF, tl.load(v_places + HALF, mask=inside), mask=inside)


@triton.jit
def _norm_and_rotate(
    places: tl.tensor,
    inside: tl.tensor,
    weight_places: tl.tensor,
    weight_inside: tl.tensor,
    eps: float,
    cos: tl.tensor,
    sin: tl.tensor,
    HALF: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:
    """Both halves [heads, HALF] of the heads at `places`, in the cache's dtype."""
    dtype = places.dtype.element_ty
    first = tl.load(places, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(places + HALF, mask=inside, other=0.0).to(tl.float32)
    squares = tl.sum(first * first + second * second, axis=1)
    scale = tl.rsqrt(squares / (2 * HALF) + eps)[:, None]
    first_weight = tl.load(weight_places, mask=weight_inside, other=0.0).to(tl.float32)
    second_weight = tl.load(weight_places + HALF, mask=weight_inside, other=0.0).to(tl.float32)
    first = (first * scale * first_weight).to(dtype).to(tl.float32)
    second = (second * scale * second_weight).to(dtype).to(tl.float32)
    return (first * cos - second * sin).to(dtype), (second * cos + first * sin).to(dtype)
