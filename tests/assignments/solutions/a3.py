"""Assignment 3: a two-phase scheduler with chunked prefill.

Write `schedule`, `postprocess` and `finish_reason` of `Scheduler`. The pool is large enough that a decode always finds
its block: preemption is the next assignment. You need not record anything. Helpers of your own are welcome.
"""

from collections import deque

from nanoinfer import BlockManager, EngineConfig, Sequence
from nanoinfer.core.admission import check_request
from nanoinfer.core.plan import Row, StepPlan
from nanoinfer.core.sequence import SequenceStatus
from nanoinfer.reasons import FinishReason, Stop


class Scheduler:
    """Chooses what each step computes.

    Attributes:
        waiting: sequences whose tokens must still be computed, in order of arrival.
        running: sequences that decode, in order.
        sequences: every live sequence by id.
        block_manager: owns the blocks; ask it by can_allocate, num_needed_blocks, allocate, may_append, hash_blocks,
            deallocate. `len(block_manager.free_block_ids)` blocks are free.
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

    # ---- yours ----

    def schedule(self) -> StepPlan:
        """The plan of the next step: `StepPlan(phase, rows, stop, decode_stop)`.

        First try a prefill batch. Look at the head of `waiting` again and again, and stop for the first of these
        reasons that holds, in this order:

        - `Stop("QUEUE_EMPTY")`: nobody waits;
        - `Stop("MAX_SEQS", {"scheduled": rows so far, "limit": ...})`: the batch has max_num_seqs rows;
        - `Stop("TOKEN_BUDGET", {"batched": tokens so far, "limit": ...})`: max_num_batched_tokens are scheduled;
        - `Stop("NO_BLOCKS", {"needed": ..., "free": ...})`: it has no table yet, and the table does not fit;
        - `Stop("CHUNK_NOT_ALLOWED", {"needed": ..., "remaining": ...})`: what it still needs to compute is more than
          what remains of the budget, and it is not the first of the batch.

        Else it joins the batch: it gets its whole table if it has none, and computes what it needs, or a chunk as
        large as the budget. Tokens found in the prefix cache need not be computed. If the batch completes it, it moves
        to the end of `running` (status RUNNING); else it stays at the head of `waiting`.

        With at least one row that is the plan: phase "prefill", decode_stop `Stop("PHASE_EXCLUSIVE")`.

        Else plan a decode batch: one token for each of `running` in order, with a block for it where it needs one,
        until all were looked at (`Stop("RUNNING_EMPTY")`) or the batch has max_num_seqs rows (`Stop("MAX_SEQS", ...)`).
        That is `decode_stop`; `stop` still says why nobody was admitted. The order of `running` does not change.
        """
        # BEGIN SOLUTION
        rows, stop = self._prefill()
        if rows:
            return StepPlan("prefill", rows, stop, Stop("PHASE_EXCLUSIVE"))
        decode_stop = Stop("RUNNING_EMPTY")
        for seq in self.running:
            if len(rows) == self.max_num_seqs:
                decode_stop = Stop("MAX_SEQS", {"scheduled": len(rows), "limit": self.max_num_seqs})
                break
            self.block_manager.may_append(seq)
            rows.append(self.decode_row(seq))
        return StepPlan("decode", rows, stop, decode_stop)
        # END SOLUTION

    # BEGIN SOLUTION
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

    # END SOLUTION

    def postprocess(self, plan: StepPlan, token_ids: list[int]) -> None:
        """Take in the step that was run: one sampled token for each row of `plan`.

        For each row: make the filled blocks findable (`hash_blocks`, which reads the counters as they were before the
        step), count the scheduled tokens as computed, and set `num_scheduled_tokens` back to 0. If now all tokens of
        the sequence are computed, its prefill is over (`is_prefill` is False), and its sample is a new token: append
        it, and say so in `row.token_id`. Else the row was a middle chunk, whose sample is dropped.

        A sequence with a reason to finish leaves: out of `running` and `sequences`, its blocks freed, its status
        FINISHED, and the reason in `finish_reason`.
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

    def finish_reason(self, seq: Sequence) -> FinishReason | None:
        """Why `seq` ends after its newest token, or None. The first of these that holds:

        EOS: the token is in `config.eos`, and `sampling_params.ignore_eos` is off; STOP: it is in
        `sampling_params.stop_token_ids`; LENGTH: there are `sampling_params.max_tokens` completion tokens, or
        `config.max_model_len` tokens in all.
        """
        # BEGIN SOLUTION
        params = seq.sampling_params
        if seq.last_token in self.config.eos and not params.ignore_eos:
            return FinishReason.EOS
        if seq.last_token in params.stop_token_ids:
            return FinishReason.STOP
        if seq.num_completion_tokens >= params.max_tokens or len(seq) >= self.config.max_model_len:
            return FinishReason.LENGTH
        return None
        # END SOLUTION
