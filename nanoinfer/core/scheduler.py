"""The scheduler: two queues, and one decision per step.

`waiting` holds sequences whose KV must still be computed, `running` those that decode. A sequence moves to `running`
when the step just scheduled will complete the KV of all its tokens. Chunks, prefix hits and recomputation all follow
from that rule. Only a scheduler edits the queues. It does not run a model, and blocks belong to the block manager.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Tokens

from nanoinfer.config import EngineConfig
from nanoinfer.core.admission import check_sequence
from nanoinfer.core.block_manager import BlockManager
from nanoinfer.core.plan import Row, StepPlan
from nanoinfer.core.sequence import Sequence, SequenceStatus
from nanoinfer.reasons import FinishReason, Preemption, Stop, StopReason
from nanoinfer.trace.recorder import NULL_RECORDER, Recorder


class Scheduler:
    """Prefill first, strictly first come, first served. Another policy is a subclass with a `schedule` of its own.

    `block_manager_cls` is called with (num_blocks, block_size). `sequences` holds the live ones by id.
    """

    def __init__(self, config: EngineConfig, block_manager_cls: type[BlockManager] = BlockManager) -> None:
        if config.num_kvcache_blocks < 1:
            raise ValueError("a scheduler without a model needs num_kvcache_blocks, e.g. num_kvcache_blocks=64")
        scheduler_class(config.policy, type(self))  # raises if the config names another policy
        self.config = config
        self.max_num_seqs = config.max_num_seqs
        self.max_num_batched_tokens = config.max_num_batched_tokens
        self.block_size = config.kvcache_block_size
        self.block_manager = block_manager_cls(config.num_kvcache_blocks, config.kvcache_block_size)
        self.block_manager.enable_prefix_caching = config.enable_prefix_caching
        self.waiting: deque[Sequence] = deque()
        self.running: deque[Sequence] = deque()
        self.sequences: dict[int, Sequence] = {}
        self.recorder: Recorder = NULL_RECORDER  # told of every queue move

    def add(self, seq: Sequence) -> None:
        """Put a new sequence at the end of `waiting`. Raises ValueError for one that `check_sequence` refuses."""
        check_sequence(seq, self.config, self.sequences)
        self.sequences[seq.seq_id] = seq
        self.waiting.append(seq)
        self.recorder.arrive(seq.seq_id, seq.num_prompt_tokens)

    def is_finished(self) -> bool:
        return not self.waiting and not self.running

    def schedule(self) -> StepPlan:
        """Choose a prefill batch if one can be made, else a decode batch, and reserve its blocks."""
        scheduled_seqs, stop = self._prefill()
        if scheduled_seqs:
            rows = list(map(self.prefill_row, scheduled_seqs))
            return self.checked(StepPlan("prefill", rows, stop, Stop(StopReason.PHASE_EXCLUSIVE)))
        scheduled_seqs, decode_stop, preempted = self._decode()
        return self.checked(StepPlan("decode", list(map(Row, scheduled_seqs)), stop, decode_stop, preempted))

    def _prefill(self) -> tuple[list[Sequence], Stop]:
        """Pack waiting sequences from the head until a limit is reached, and say which one it was."""
        scheduled_seqs: list[Sequence] = []
        num_batched_tokens = 0
        while self.waiting and len(scheduled_seqs) < self.max_num_seqs:
            seq = self.waiting[0]
            remaining = self.max_num_batched_tokens - num_batched_tokens
            if remaining == 0:
                budget = {"batched": num_batched_tokens, "limit": self.max_num_batched_tokens}
                return scheduled_seqs, Stop(StopReason.TOKEN_BUDGET, budget)
            if not seq.block_table:
                num_cached_blocks = self.block_manager.can_allocate(seq)
                if num_cached_blocks == -1:  # the head does not fit, and those behind it may not overtake it
                    return scheduled_seqs, self.no_blocks(seq)
                num_tokens = seq.num_tokens - num_cached_blocks * self.block_size
            else:  # between two chunks: its whole table is reserved already
                num_tokens = seq.num_tokens - seq.num_computed_tokens
            if remaining < num_tokens and scheduled_seqs:  # only the first sequence of a batch may be cut
                cut = {"needed": num_tokens, "remaining": remaining}
                return scheduled_seqs, Stop(StopReason.CHUNK_NOT_ALLOWED, cut)
            if not seq.block_table:
                self.block_manager.allocate(seq, num_cached_blocks)
            seq.num_scheduled_tokens = min(num_tokens, remaining)
            num_batched_tokens += seq.num_scheduled_tokens
            if seq.num_computed_tokens + seq.num_scheduled_tokens == seq.num_tokens:
                seq.status = SequenceStatus.RUNNING
                self.waiting.popleft()
                self.running.append(seq)
                self.recorder.run(seq.seq_id)
            scheduled_seqs.append(seq)
        stop = self.batch_full(len(scheduled_seqs)) if self.waiting else Stop(StopReason.QUEUE_EMPTY)
        return scheduled_seqs, stop

    def _decode(self) -> tuple[list[Sequence], Stop, list[Preemption]]:
        """One token for each running sequence in order, preempting from the tail where blocks run out."""
        scheduled_seqs: list[Sequence] = []
        preempted: list[Preemption] = []
        while self.running and len(scheduled_seqs) < self.max_num_seqs:
            seq = self.running.popleft()
            while not self.block_manager.can_append(seq):
                if self.running:
                    preempted.append(self.preempt(self.running.pop(), on_behalf_of=seq))
                else:
                    preempted.append(self.preempt(seq))
                    break
            else:  # reached when the condition turned false, not by the break
                seq.num_scheduled_tokens = 1  # is_prefill turned False when its prefill was complete
                self.block_manager.may_append(seq)
                scheduled_seqs.append(seq)
        stop = self.batch_full(len(scheduled_seqs)) if self.running else Stop(StopReason.RUNNING_EMPTY)
        self.running.extendleft(reversed(scheduled_seqs))  # extendleft reverses too: the batch stays first, in order
        return scheduled_seqs, stop, preempted

    # ---- what every policy needs ----------------------------------------------------------

    def preempt(self, seq: Sequence, on_behalf_of: Sequence | None = None) -> Preemption:
        """Take all blocks from `seq`, already out of `running`, and put it at the front of `waiting`."""
        beneficiary = on_behalf_of or seq
        computed, free_before = seq.num_computed_tokens, len(self.block_manager.free_block_ids)
        seq.num_scheduled_tokens = seq.num_chunks = 0
        seq.num_preemptions += 1
        self.recorder.preempt(seq.seq_id, beneficiary.seq_id)
        seq.status = SequenceStatus.WAITING
        seq.is_prefill = True
        self.block_manager.deallocate(seq)
        self.waiting.appendleft(seq)
        blocks = len(self.block_manager.free_block_ids) - free_before
        return Preemption(seq.seq_id, beneficiary.seq_id, "self" if beneficiary is seq else "tail", blocks, computed)

    def prefill_row(self, seq: Sequence) -> Row:
        """Count the chunk of `seq` just scheduled, and return its row: chunk i of n, if the rest get full budgets."""
        seq.num_chunks += 1
        left = seq.num_tokens - seq.num_computed_tokens - seq.num_scheduled_tokens
        return Row(seq, (seq.num_chunks, seq.num_chunks - (-left // self.max_num_batched_tokens)))  # rounded up

    def no_blocks(self, seq: Sequence) -> Stop:
        """Why `seq` cannot be admitted: blocks it needs, hits in the free list included, and blocks that are free."""
        needed, free = self.block_manager.num_needed_blocks(seq), len(self.block_manager.free_block_ids)
        return Stop(StopReason.NO_BLOCKS, {"needed": needed, "free": free})

    def batch_full(self, scheduled: int) -> Stop:
        return Stop(StopReason.MAX_SEQS, {"scheduled": scheduled, "limit": self.max_num_seqs})

    def checked(self, plan: StepPlan) -> StepPlan:
        """Return `plan` if it keeps what every plan must keep. RuntimeError if some are queued and none can run."""
        if (self.waiting or self.running) and not plan.rows:
            raise RuntimeError(f"no sequence can run ({plan})\n{self}")
        seqs = [row.seq for row in plan.rows]
        assert len(set(seqs)) == len(seqs) <= self.max_num_seqs, "batch limit exceeded"
        assert all(seq.num_scheduled_tokens > 0 for seq in seqs), "a row without work"
        assert sum(seq.num_scheduled_tokens for seq in seqs if seq.is_prefill) <= self.max_num_batched_tokens, "budget"
        return plan

    def postprocess(self, plan: StepPlan, token_ids: Tokens[int]) -> None:
        """Register filled blocks, append the sampled tokens, finish. ValueError unless there is one token per row."""
        plan.check_tokens(token_ids)
        for row, token_id in zip(plan.rows, token_ids, strict=True):
            seq = row.seq
            if seq.is_finished or not self._count_computed(seq):
                continue  # aborted since it was scheduled, or a middle chunk, whose sample is not the next token
            row.token_id = seq.append_token(token_id)
            if reason := self._finish_reason(seq):
                self._finish(seq, reason)

    def _count_computed(self, seq: Sequence) -> bool:
        """Count the scheduled tokens as computed. True if `seq` is complete, so that its sample is its next token."""
        self.block_manager.hash_blocks(seq)
        seq.num_computed_tokens += seq.num_scheduled_tokens
        seq.num_scheduled_tokens = 0
        seq.is_prefill = seq.num_computed_tokens < seq.num_tokens
        return not seq.is_prefill

    def _finish_reason(self, seq: Sequence) -> FinishReason | None:
        if seq.last_token in self.config.eos and not seq.sampling_params.ignore_eos:
            return FinishReason.EOS
        if seq.last_token in seq.sampling_params.stop_token_ids:
            return FinishReason.STOP
        return FinishReason.LENGTH if self._at_max_length(seq) else None

    def _at_max_length(self, seq: Sequence) -> bool:
        return seq.num_completion_tokens >= seq.sampling_params.max_tokens or len(seq) >= self.config.max_model_len

    def _finish(self, seq: Sequence, reason: FinishReason) -> None:
        self.recorder.finish(seq.seq_id, reason)
        self._retire(seq, reason)

    def _retire(self, seq: Sequence, reason: FinishReason) -> None:
        """Take `seq` out of its queue, free its blocks, mark it finished and forget it."""
        (self.running if seq.status is SequenceStatus.RUNNING else self.waiting).remove(seq)
        del self.sequences[seq.seq_id]
        seq.status, seq.finish_reason = SequenceStatus.FINISHED, reason
        self.block_manager.deallocate(seq)

    def abort(self, seq_id: int) -> None:
        """Drop a live sequence and free its blocks. Raises ValueError for an unknown id."""
        if seq_id not in self.sequences:
            raise ValueError(f"no live request {seq_id}; live ids: {sorted(self.sequences)}")
        self.recorder.abort(seq_id)
        self._retire(self.sequences[seq_id], FinishReason.ABORT)

    def undo(self, plan: StepPlan) -> None:
        """Take back a plan that did not run. Its rows are preempted, except that a middle chunk keeps its blocks."""
        for row in reversed(plan.rows):
            seq = row.seq
            if seq.status is SequenceStatus.RUNNING:
                self.running.remove(seq)
                self.preempt(seq)
            elif row.chunk and not seq.is_finished:  # a middle chunk: the chunks before it stay valid
                seq.num_scheduled_tokens = 0
                seq.num_chunks -= 1

    def __str__(self) -> str:
        waiting, running = (", ".join(map(repr, list(seqs)[:8])) or "empty" for seqs in (self.waiting, self.running))
        pool = f"{len(self.block_manager.free_block_ids)} of {self.config.num_kvcache_blocks}"
        return f"waiting: {waiting}\nrunning: {running}\nfree blocks: {pool}"


POLICIES: dict[str, type[Scheduler]] = {"prefill_first": Scheduler}  # core/policies/ adds others, and so may a notebook


def policy_name(cls: type | None) -> str:
    """The name of `cls` in POLICIES, or of its nearest base that has one; the default's name without a class."""
    return next((n for base in (cls or Scheduler).__mro__ for n, c in POLICIES.items() if c is base), "prefill_first")


def scheduler_class(policy: str, cls: type[Scheduler] | None = None) -> type[Scheduler]:
    """`cls`, or the class that `policy` names. ValueError if `policy` is unknown or names another class than `cls`."""
    if policy not in POLICIES:
        raise ValueError(f"policy must be one of {', '.join(POLICIES)}, got {policy!r}")
    named = POLICIES[policy]
    if cls and named is not POLICIES[policy_name(cls)]:
        raise ValueError(f"policy {policy!r} is {named.__name__}, but the scheduler is {cls.__name__}: pass one")
    return cls or named
