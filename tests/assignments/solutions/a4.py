"""Assignment 4: preemption and recompute.

The prefill half of `Scheduler` is given. Write `decode`, `preempt` and `postprocess`, so that a pool that is too small
costs time and never a token. You need not record anything. Helpers of your own are welcome.
"""

from collections import deque

from nanoinfer import BlockManager, EngineConfig, Sequence
from nanoinfer.core.admission import check_request
from nanoinfer.core.plan import Row, StepPlan
from nanoinfer.core.sequence import SequenceStatus
from nanoinfer.reasons import FinishReason, Preemption, Stop


class Scheduler:
    """Chooses what each step computes.

    Attributes:
        waiting: sequences whose tokens must still be computed, in order.
        running: sequences that decode, in order.
        sequences: every live sequence by id.
        block_manager: owns the blocks; you need can_append, may_append, hash_blocks and deallocate.
            `len(block_manager.free_block_ids)` blocks are free.
    """

    def __init__(self, config: EngineConfig, block_manager_cls: type[BlockManager] = BlockManager) -> None:
        self.config = config
        self.max_num_seqs = config.max_num_seqs
        self.max_num_batched_tokens = config.max_num_batched_tokens
        self.block_manager = block_manager_cls(config.num_kvcache_blocks, config.kvcache_block_size)
        self.block_manager.enable_prefix_caching = config.enable_prefix_caching
        self.waiting: deque[Sequence] = deque()
        self.running: deque[Sequence] = deque()
        self.sequences: dict[int, Sequence] = {}

    # ---- given ----

    def add(self, seq: Sequence) -> None:
        """A new request, at the end of `waiting`; ValueError for one that can never be served."""
        check_request(seq.token_ids, seq.sampling_params, self.config)
        self.sequences[seq.seq_id] = seq
        self.waiting.append(seq)

    def is_finished(self) -> bool:
        return not self.waiting and not self.running

    def prefill_row(self, seq: Sequence, num_tokens: int) -> Row:
        """A row that computes the next `num_tokens` tokens of `seq`. It reads the table: allocate first."""
        seq.num_scheduled_tokens = num_tokens
        seq.num_chunks += 1
        left = len(seq) - seq.num_computed_tokens - num_tokens
        return Row(seq, (seq.num_chunks, seq.num_chunks - (-left // self.max_num_batched_tokens)))

    def decode_row(self, seq: Sequence) -> Row:
        """A row that computes the newest token of `seq`. It reads the table: append first."""
        seq.num_scheduled_tokens = 1
        return Row(seq, None)

    def schedule(self) -> StepPlan:
        """A prefill batch if one can be made, else a decode batch."""
        rows, stop = self._prefill()
        if rows:
            return StepPlan("prefill", rows, stop, Stop("PHASE_EXCLUSIVE"))
        rows, decode_stop, preempted = self.decode()
        return StepPlan("decode", rows, stop, decode_stop, preempted)

    def _prefill(self) -> tuple[list[Row], Stop]:
        rows: list[Row] = []
        batched = 0
        while True:
            stop = self._batch_is_over(rows, batched)
            if stop:
                return rows, stop
            seq = self.waiting[0]
            cached = self.block_manager.can_allocate(seq) if not seq.block_table else 0
            if cached == -1:
                needed, free = self.block_manager.num_needed_blocks(seq), len(self.block_manager.free_block_ids)
                return rows, Stop("NO_BLOCKS", {"needed": needed, "free": free})
            needed = len(seq) - seq.num_computed_tokens - cached * self.block_manager.block_size
            remaining = self.max_num_batched_tokens - batched
            if needed > remaining and rows:
                return rows, Stop("CHUNK_NOT_ALLOWED", {"needed": needed, "remaining": remaining})
            if not seq.block_table:
                self.block_manager.allocate(seq, cached)
            rows.append(self.prefill_row(seq, min(needed, remaining)))
            batched += rows[-1].num_scheduled
            if needed <= remaining:
                self.running.append(self.waiting.popleft())
                seq.status = SequenceStatus.RUNNING

    def _batch_is_over(self, rows: list[Row], batched: int) -> Stop | None:
        if not self.waiting:
            return Stop("QUEUE_EMPTY")
        if len(rows) == self.max_num_seqs:
            return Stop("MAX_SEQS", {"scheduled": len(rows), "limit": self.max_num_seqs})
        if batched == self.max_num_batched_tokens:
            return Stop("TOKEN_BUDGET", {"batched": batched, "limit": self.max_num_batched_tokens})
        return None

    def finish_reason(self, seq: Sequence) -> FinishReason | None:
        """Why `seq` ends after its newest token, or None."""
        params = seq.sampling_params
        if seq.last_token in self.config.eos and not params.ignore_eos:
            return FinishReason.EOS
        if seq.last_token in params.stop_token_ids:
            return FinishReason.STOP
        if seq.num_completion_tokens >= params.max_tokens or len(seq) >= self.config.max_model_len:
            return FinishReason.LENGTH
        return None

    # ---- yours ----

    def decode(self) -> tuple[list[Row], Stop, list[Preemption]]:
        """One token for each of `running` in order: the rows, why the loop ended, and the victims in order.

        The loop ends when the batch has max_num_seqs rows (`Stop("MAX_SEQS", {"scheduled": ..., "limit": ...})`) or
        when all were looked at (`Stop("RUNNING_EMPTY")`).

        A sequence whose newest token has no place (`can_append`) needs room. As long as it has none, the last of
        `running` is preempted for it. With nobody behind it, it is preempted itself and gets no row. Those of
        `running` that were not preempted keep their order.
        """
        # BEGIN SOLUTION
        rows: list[Row] = []
        victims: list[Preemption] = []
        stop = Stop("RUNNING_EMPTY")
        while self.running:
            if len(rows) == self.max_num_seqs:
                stop = Stop("MAX_SEQS", {"scheduled": len(rows), "limit": self.max_num_seqs})
                break
            seq = self.running.popleft()
            victims += self._make_room(seq)
            if seq.status is SequenceStatus.RUNNING:
                self.block_manager.may_append(seq)
                rows.append(self.decode_row(seq))
        self.running.extendleft(row.seq for row in reversed(rows))
        return rows, stop, victims
        # END SOLUTION

    # BEGIN SOLUTION
    def _make_room(self, seq: Sequence) -> list[Preemption]:
        victims = []
        while seq.status is SequenceStatus.RUNNING and not self.block_manager.can_append(seq):
            victims.append(self.preempt(self.running.pop() if self.running else seq, seq))
        return victims

    # END SOLUTION

    def preempt(self, seq: Sequence, on_behalf_of: Sequence | None = None) -> Preemption:
        """Take all blocks from `seq` (already out of `running`) and put it at the front of `waiting`.

        It keeps its tokens and will compute them again, as if they were a prompt. So it is WAITING, `is_prefill` is
        True, `num_scheduled_tokens` and `num_chunks` are 0, and it was preempted once more (`num_preemptions`).

        Args:
            seq: the victim.
            on_behalf_of: who needs the room; None for the victim itself.

        Returns:
            Preemption(victim, on_behalf_of, rule, blocks, tokens): both ids; the rule "self" if they are the same, else
            "tail"; how many blocks have come to the free list; how many computed tokens were lost.
        """
        # BEGIN SOLUTION
        beneficiary = seq if on_behalf_of is None else on_behalf_of
        tokens, free = seq.num_computed_tokens, len(self.block_manager.free_block_ids)
        self.block_manager.deallocate(seq)
        seq.status = SequenceStatus.WAITING
        seq.is_prefill = True
        seq.num_scheduled_tokens = seq.num_chunks = 0
        seq.num_preemptions += 1
        self.waiting.appendleft(seq)
        rule = "self" if seq is beneficiary else "tail"
        blocks = len(self.block_manager.free_block_ids) - free
        return Preemption(seq.seq_id, beneficiary.seq_id, rule, blocks, tokens)
        # END SOLUTION

    def postprocess(self, plan: StepPlan, token_ids: list[int]) -> None:
        """Take in the step that was run: one sampled token for each row of `plan`.

        For each row: make the filled blocks findable (`hash_blocks`, which reads the counters as they were before the
        step), count the scheduled tokens as computed, and set `num_scheduled_tokens` back to 0. If now all tokens of
        the sequence are computed, its prefill is over (`is_prefill` is False), and its sample is a new token: append
        it, and say so in `row.token_id`. Else the row was a middle chunk, whose sample is dropped. This holds for a
        victim that comes back, too: it computes its old tokens and its newest one, and the sample after it is new.

        A sequence with a reason to finish leaves: out of `running` and `sequences`, its blocks freed, its status
        FINISHED, and the reason (of `self.finish_reason(seq)`) in `seq.finish_reason`.
        """
        # BEGIN SOLUTION
        for row, token_id in zip(plan.rows, token_ids, strict=True):
            seq = row.seq
            self.block_manager.hash_blocks(seq)
            seq.num_computed_tokens += seq.num_scheduled_tokens
            seq.num_scheduled_tokens = 0
            if seq.num_computed_tokens < len(seq):
                continue
            seq.is_prefill = False
            row.token_id = seq.append_token(token_id)
            seq.finish_reason = self.finish_reason(seq)
            if seq.finish_reason is not None:
                self.running.remove(seq)
                del self.sequences[seq.seq_id]
                seq.status = SequenceStatus.FINISHED
                self.block_manager.deallocate(seq)
        # END SOLUTION
