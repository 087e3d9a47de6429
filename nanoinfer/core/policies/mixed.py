"""Mixed: running sequences go first, then prefill chunks fill what is left of the budget.

The order of vLLM's V1 scheduler: decode and prefill rows share a batch, any sequence may be cut, and a step that
preempted admits no one. A sequence runs from its first chunk on, so `waiting` holds only sequences without blocks.
Unlike vLLM, a prompt's whole table is reserved at admission.
"""

from __future__ import annotations

from nanoinfer.core.plan import Phase, Row, StepPlan
from nanoinfer.core.scheduler import Scheduler
from nanoinfer.core.sequence import SequenceStatus
from nanoinfer.reasons import Preemption, Stop, StopReason


class MixedScheduler(Scheduler):
    """Decode and prefill rows in one batch."""

    def schedule(self) -> StepPlan:
        """Rows for `running`, then, unless this step preempted, for the head of `waiting`."""
        rows, decode_stop, preempted = self._run()
        stop = Stop(StopReason.PREEMPTED_THIS_STEP, {"victims": len(preempted)}) if preempted else self._admit(rows)
        return self.checked(StepPlan(_phase(rows), rows, stop, decode_stop, preempted))

    def _run(self) -> tuple[list[Row], Stop, list[Preemption]]:
        """Each running sequence in order: its next chunk while it prefills, else one token."""
        rows: list[Row] = []
        preempted: list[Preemption] = []
        num_batched_tokens = 0
        stop: Stop | None = None
        while self.running and not (stop := self._full(rows, num_batched_tokens)):
            seq = self.running.popleft()
            if seq.is_prefill:
                remaining = self.max_num_batched_tokens - num_batched_tokens
                seq.num_scheduled_tokens = min(seq.num_tokens - seq.num_computed_tokens, remaining)
                rows.append(self.prefill_row(seq))
            else:
                while not self.block_manager.can_append(seq):
                    if self.running:
                        preempted.append(self.preempt(self.running.pop(), on_behalf_of=seq))
                    else:
                        preempted.append(self.preempt(seq))
                        break
                else:
                    seq.num_scheduled_tokens = 1
                    self.block_manager.may_append(seq)
                    rows.append(Row(seq))
            num_batched_tokens += seq.num_scheduled_tokens  # 0 for a sequence that preempted itself
        self.running.extendleft(reversed([row.seq for row in rows]))
        return rows, stop or Stop(StopReason.RUNNING_EMPTY), preempted

    def _admit(self, rows: list[Row]) -> Stop:
        """Append a first chunk for each admitted sequence to `rows`; returns why it ended."""
        num_batched_tokens = sum(row.num_scheduled for row in rows)
        while self.waiting:
            if stop := self._full(rows, num_batched_tokens):
                return stop
            seq = self.waiting[0]
            num_cached_blocks = self.block_manager.can_allocate(seq)
            if num_cached_blocks == -1:
                return self.no_blocks(seq)
            self.block_manager.allocate(seq, num_cached_blocks)
            seq.status = SequenceStatus.RUNNING
            self.waiting.popleft()
            self.running.append(seq)
            self.recorder.run(seq.seq_id)
            remaining = self.max_num_batched_tokens - num_batched_tokens
            seq.num_scheduled_tokens = min(seq.num_tokens - seq.num_computed_tokens, remaining)
            num_batched_tokens += seq.num_scheduled_tokens
            rows.append(self.prefill_row(seq))
        return Stop(StopReason.QUEUE_EMPTY)

    def _full(self, rows: list[Row], num_batched_tokens: int) -> Stop | None:
        """Which limit the batch has reached, if any."""
        if len(rows) == self.max_num_seqs:
            return self.batch_full(len(rows))
        if num_batched_tokens == self.max_num_batched_tokens:
            return Stop(StopReason.TOKEN_BUDGET, {"batched": num_batched_tokens, "limit": self.max_num_batched_tokens})
        return None


def _phase(rows: list[Row]) -> Phase:
    kinds = {row.chunk is None for row in rows}
    return "mixed" if len(kinds) == 2 else "decode" if True in kinds else "prefill"
