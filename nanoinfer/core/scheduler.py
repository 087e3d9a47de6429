"""The scheduler: two queues, and one decision per step.

`waiting` holds sequences whose KV must still be computed, `running` those that decode. This file
owns the queues and every move between them. Which sequences a step takes is the policy's choice
(`core/policies/`); what a token means once it is sampled is decided in `postprocess`, or in its two
halves: `advance` when a plan is under way, and `resolve` when its tokens are known.
It does not run a model and does not own blocks.

A sequence is done with prefill when its computed tokens have caught up with all its tokens. Chunks,
prefix hits and recompute after preemption are all cases of that one sentence.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Tokens

from nanoinfer.config import EngineConfig
from nanoinfer.core.admission import check_request
from nanoinfer.core.block_manager import BlockManager
from nanoinfer.core.plan import Row, StepPlan
from nanoinfer.core.policies import get_policy
from nanoinfer.core.sequence import PENDING, Sequence, SequenceStatus
from nanoinfer.reasons import FinishReason, Preemption, Stop, StopReason
from nanoinfer.trace.recorder import NULL_RECORDER, Recorder


class Scheduler:
    """Chooses what each step computes.

    Args:
        config: `num_kvcache_blocks` must be set (not -1).
        block_manager_cls: called with (num_blocks, block_size).

    Attributes:
        waiting, running: the queues, in order.
        sequences: every live sequence by id.
        recorder: told of every queue move; does nothing by default.
    """

    def __init__(self, config: EngineConfig, block_manager_cls: type[BlockManager] = BlockManager) -> None:
        if config.num_kvcache_blocks < 1:
            raise ValueError(
                "num_kvcache_blocks must be set for a scheduler without a model, e.g. num_kvcache_blocks=64"
            )
        self.config = config
        self.max_num_seqs = config.max_num_seqs
        self.max_num_batched_tokens = config.max_num_batched_tokens
        self.policy = get_policy(config.policy)
        self.block_manager = block_manager_cls(config.num_kvcache_blocks, config.kvcache_block_size)
        self.block_manager.enable_prefix_caching = config.enable_prefix_caching
        self.waiting: deque[Sequence] = deque()
        self.running: deque[Sequence] = deque()
        self.sequences: dict[int, Sequence] = {}
        self.recorder: Recorder = NULL_RECORDER

    def add(self, seq: Sequence) -> None:
        """Put a new sequence at the end of `waiting`.

        Raises:
            ValueError: what can never be served (see `check_request`), a reused id or another block size;
                nothing is queued then.
        """
        check_request(seq.token_ids, seq.sampling_params, self.config)
        if seq.block_size != self.config.kvcache_block_size:
            raise ValueError(
                f"block_size of sequence {seq.seq_id} is {seq.block_size}, "
                f"the scheduler's is {self.config.kvcache_block_size}"
            )
        if seq.seq_id in self.sequences:
            raise ValueError(f"seq_id {seq.seq_id} is already in use by a live sequence")
        self.sequences[seq.seq_id] = seq
        self.waiting.append(seq)
        self.recorder.arrive(seq.seq_id, seq.num_prompt_tokens)

    def is_finished(self) -> bool:
        """Whether both queues are empty."""
        return not self.waiting and not self.running

    # ---- one step -------------------------------------------------------------------------

    def schedule(self) -> StepPlan:
        """Choose the rows of the next step and reserve their blocks.

        Raises:
            RuntimeError: sequences are queued but none can run; the message holds the state.
        """
        plan = self.policy(self)
        if not plan.rows and not self.is_finished():
            raise RuntimeError(f"no sequence can run ({plan.stop}; {plan.decode_stop})\n{self.describe()}")
        prefilled = sum(row.num_scheduled for row in plan.rows if row.chunk)  # a decode batch is capped by max_num_seqs
        assert prefilled <= self.max_num_batched_tokens, "token budget exceeded"
        assert len({row.seq_id for row in plan.rows}) == len(plan.rows) <= self.max_num_seqs, "batch limit exceeded"
        assert all(row.num_scheduled > 0 for row in plan.rows), "a row without work"
        return plan

    def postprocess(self, plan: StepPlan, token_ids: Tokens[int]) -> None:
        """Take in one sampled token per row: register filled blocks, append, finish.

        The sample of a middle chunk is dropped: that position is not the end of the sequence.
        """
        self._check_tokens("postprocess", plan, token_ids)
        for row, token_id in zip(plan.rows, token_ids, strict=True):
            seq = row.seq
            if not seq.is_finished and self._advance(seq):  # finished: aborted while the step ran
                row.token_id = seq.append_token(token_id)
                self._judge(seq)

    def advance(self, plan: StepPlan) -> None:
        """Take in that `plan` is under way, before its tokens are known: each sequence it completes gets a pending one.

        A sequence that this brings to its length limit ends here, whatever the token will be. Its blocks are free
        at once: the device runs plans in order, so whoever gets them writes later.
        """
        for row in plan.rows:
            seq = row.seq
            if not seq.is_finished and self._advance(seq):
                seq.append_token(PENDING)
                if self._is_full(seq):
                    self._end(seq, FinishReason.LENGTH)

    def resolve(self, plan: StepPlan, token_ids: Tokens[int]) -> None:
        """Take in the tokens of a plan that `advance` has seen; later rows of a sequence that one ends are wasted."""
        self._check_tokens("resolve", plan, token_ids)
        for row, token_id in zip(plan.rows, token_ids, strict=True):
            if row.seq.is_pending:  # else a middle chunk, or ended before this plan ran
                row.token_id = row.seq.fill_pending(token_id)
                self._judge(row.seq)

    def _check_tokens(self, caller: str, plan: StepPlan, token_ids: Tokens[int]) -> None:
        if len(token_ids) != len(plan.rows):
            raise ValueError(f"{caller} needs one token per row: {len(plan.rows)} rows, {len(token_ids)} token_ids")

    def _advance(self, seq: Sequence) -> bool:
        """Count what was scheduled as computed; whether `seq` is complete, so that its sample is a new token."""
        self.block_manager.hash_blocks(seq)
        seq.num_computed_tokens += seq.num_scheduled_tokens
        seq.num_scheduled_tokens = 0
        if seq.num_computed_tokens < len(seq):
            return False
        seq.is_prefill = False
        return True

    def _judge(self, seq: Sequence) -> None:
        """End `seq` if that is what its last token means, or correct why it has ended."""
        reason = self._finish_reason(seq)
        if reason and not seq.is_finished:
            self._end(seq, reason)
        elif reason and reason is not seq.finish_reason:  # ended for its length before this token was known
            self.recorder.finish(seq.seq_id, reason, "ended")
            seq.finish_reason = reason

    def abort(self, seq_id: int) -> None:
        """Drop a live sequence and free its blocks. Raises ValueError for an unknown id."""
        seq = self.sequences.get(seq_id)
        if seq is None:
            raise ValueError(f"no live request {seq_id}; live ids: {sorted(self.sequences)}")
        self._queue_of(seq).remove(seq)
        seq.drop_pending()
        self.recorder.abort(seq_id)
        self._retire(seq, FinishReason.ABORT)

    def revive(self, seq: Sequence) -> None:
        """Queue a sequence again that ended for its length, but whose last token was lost with its step."""
        seq.drop_pending()
        seq.status, seq.finish_reason = SequenceStatus.WAITING, None
        seq.is_prefill, seq.num_chunks = True, 0
        self.sequences[seq.seq_id] = seq
        self.waiting.append(seq)
        self.recorder.arrive(seq.seq_id, seq.num_prompt_tokens)

    def _finish_reason(self, seq: Sequence) -> FinishReason | None:
        params = seq.sampling_params
        if seq.last_token in self.config.eos and not params.ignore_eos:
            return FinishReason.EOS
        if seq.last_token in params.stop_token_ids:
            return FinishReason.STOP
        return FinishReason.LENGTH if self._is_full(seq) else None

    def _is_full(self, seq: Sequence) -> bool:
        return seq.num_completion_tokens >= seq.sampling_params.max_tokens or len(seq) >= self.config.max_model_len

    def _queue_of(self, seq: Sequence) -> deque[Sequence]:
        return self.running if seq.status is SequenceStatus.RUNNING else self.waiting

    def _end(self, seq: Sequence, reason: FinishReason) -> None:
        self._queue_of(seq).remove(seq)
        self.recorder.finish(seq.seq_id, reason, None if seq.status is SequenceStatus.RUNNING else "waiting")
        self._retire(seq, reason)

    def _retire(self, seq: Sequence, reason: FinishReason) -> None:
        seq.status = SequenceStatus.FINISHED
        seq.finish_reason = reason
        del self.sequences[seq.seq_id]
        self.block_manager.deallocate(seq)

    # ---- moves a policy is made of --------------------------------------------------------

    def schedule_prefill(self, seq: Sequence, num_tokens: int) -> Row:
        """Give `seq` the next `num_tokens` of its uncomputed tokens in this step."""
        # A victim of the step before is back in `waiting` with a pending token until that step is resolved, and it
        # cannot come back before: no policy admits in the schedule() that preempted, or after it preempted.
        assert not seq.is_pending, f"prefill of a token nobody knows yet: {seq!r}"
        seq.num_scheduled_tokens = num_tokens
        seq.num_chunks += 1
        left = len(seq) - seq.num_computed_tokens - num_tokens
        num_chunks = seq.num_chunks - (-left // self.max_num_batched_tokens)
        return Row(seq, (seq.num_chunks, num_chunks))

    def schedule_decode(self, seq: Sequence) -> Row:
        """Give `seq` its one token of this step, and the block for it if it starts one."""
        self.block_manager.may_append(seq)
        seq.num_scheduled_tokens = 1
        return Row(seq, None)

    def start_running(self) -> None:
        """Move the head of `waiting` to the tail of `running`."""
        seq = self.waiting.popleft()
        seq.status = SequenceStatus.RUNNING
        self.running.append(seq)
        self.recorder.run(seq.seq_id)

    def make_room(self, seq: Sequence) -> tuple[bool, list[Preemption]]:
        """Preempt from the tail of `running` until `seq` (taken out of it) can append; last of all, `seq` itself.

        Returns:
            whether `seq` may decode, and the victims in order.
        """
        victims: list[Preemption] = []
        while not self.block_manager.can_append(seq):
            if self.running:
                victims.append(self.preempt(self.running.pop(), on_behalf_of=seq))
            else:
                victims.append(self.preempt(seq))
                break
        else:  # reached only when the condition turned false, not by the break
            return True, victims
        return False, victims

    def preempt(self, seq: Sequence, on_behalf_of: Sequence | None = None) -> Preemption:
        """Take all blocks from `seq`, already out of `running`, and put it at the front of `waiting`."""
        beneficiary = on_behalf_of or seq
        computed, free_before = seq.num_computed_tokens, len(self.block_manager.free_block_ids)
        seq.status = SequenceStatus.WAITING
        seq.is_prefill = True
        seq.num_scheduled_tokens = seq.num_chunks = 0
        seq.num_preemptions += 1
        self.recorder.preempt(seq.seq_id, beneficiary.seq_id)
        self.block_manager.deallocate(seq)
        self.waiting.appendleft(seq)
        blocks = len(self.block_manager.free_block_ids) - free_before
        return Preemption(seq.seq_id, beneficiary.seq_id, "self" if beneficiary is seq else "tail", blocks, computed)

    def no_blocks(self, seq: Sequence) -> Stop:
        """The stop for a head of `waiting` whose table does not fit, with both numbers."""
        needed, free = self.block_manager.num_needed_blocks(seq), len(self.block_manager.free_block_ids)
        return Stop(StopReason.NO_BLOCKS, {"needed": needed, "free": free})

    def describe(self) -> str:
        """The queues and the pool in a few lines, for error messages."""
        queue = {"waiting": self.waiting, "running": self.running}
        lines = [f"{name}: {', '.join(map(repr, list(seqs)[:8])) or 'empty'}" for name, seqs in queue.items()]
        return "\n".join(
            [*lines, f"free blocks: {len(self.block_manager.free_block_ids)} of {self.config.num_kvcache_blocks}"]
        )
