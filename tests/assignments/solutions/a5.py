"""Assignment 5: a fairer policy.

The default policy lets no running sequence decode while a waiting one can be prefilled. Write one that does the same,
but sets a bound: while a sequence is ready to decode, at most `patience` steps in a row pass without a decode step.

A policy is a subclass of `Scheduler` with a `schedule()` of its own. Read the default first; `schedule`, `_prefill` and
`_decode` are what you replace:

    import inspect; from nanoinfer import Scheduler; print(inspect.getsource(Scheduler))

Write yours yourself: a policy that calls one of nanoinfer's own three fails, through `super()` as well. All the other
methods of `Scheduler` and of the block manager are there for you to use. When the head of `waiting` moves to `running`,
tell the recorder: `self.recorder.run(seq.seq_id)`.
"""

from __future__ import annotations

from nanoinfer import Scheduler, Sequence
from nanoinfer.core.plan import Row, StepPlan
from nanoinfer.core.sequence import SequenceStatus
from nanoinfer.reasons import Preemption, Stop, StopReason


class FairScheduler(Scheduler):
    """Prefill first, but never for more than `patience` steps in a row while a sequence is ready to decode."""

    patience = 4  # the tests set other values

    # BEGIN SOLUTION
    steps_without_decode = 0
    # END SOLUTION

    def schedule(self) -> StepPlan:
        """The plan of the next step: a prefill batch or a decode batch, never both in one.

        It plans as the default policy does, with one exception. If `patience` prefill steps in a row have passed while
        a sequence was running, and now one is running and one is waiting, this is a decode step. Its `stop` says so
        with the number of prefill steps that have passed: `Stop("DECODE_TURN", {"waited": ..., "patience": ...})`. A
        reason may be a text. It is the turn even if the head would not have fitted: such a step does not look at it.

        A prefill step that began with `running` empty kept no sequence from decoding: it does not count. A decode step
        sets the count to 0. `patience` is 0 or more; with a very large one, every decision equals the default policy's.
        """
        # BEGIN SOLUTION
        ready, waited = bool(self.running), self.steps_without_decode
        if ready and self.waiting and waited >= self.patience:
            seqs, stop = [], Stop("DECODE_TURN", {"waited": waited, "patience": self.patience})
        else:
            seqs, stop = self._prefill()
        if seqs:
            self.steps_without_decode = waited + 1 if ready else 0
            rows = [self.prefill_row(seq) for seq in seqs]
            return self.checked(StepPlan("prefill", rows, stop, Stop(StopReason.PHASE_EXCLUSIVE)))
        self.steps_without_decode = 0
        seqs, decode_stop, preempted = self._decode()
        return self.checked(StepPlan("decode", [Row(seq) for seq in seqs], stop, decode_stop, preempted))
        # END SOLUTION

    def _prefill(self) -> tuple[list[Sequence], Stop]:
        """The sequences to prefill, from the head of `waiting` on, and why it ended there: as the default policy does.

        Only the first sequence of a batch may be cut into chunks; a head that does not fit blocks those behind it.
        """
        # BEGIN SOLUTION
        blocks, seqs = self.block_manager, []
        budget = remaining = self.max_num_batched_tokens
        while self.waiting:
            if len(seqs) == self.max_num_seqs:
                return seqs, self.batch_full(len(seqs))
            if remaining == 0:
                return seqs, Stop(StopReason.TOKEN_BUDGET, {"batched": budget, "limit": budget})
            seq = self.waiting[0]
            cached = 0 if seq.block_table else blocks.can_allocate(seq)
            if cached == -1:
                return seqs, self.no_blocks(seq)
            needed = len(seq) - seq.num_computed_tokens - cached * blocks.block_size
            if seqs and needed > remaining:
                return seqs, Stop(StopReason.CHUNK_NOT_ALLOWED, {"needed": needed, "remaining": remaining})
            if not seq.block_table:
                blocks.allocate(seq, cached)
            seq.num_scheduled_tokens = min(needed, remaining)
            remaining -= seq.num_scheduled_tokens
            seqs.append(seq)
            if seq.num_scheduled_tokens == needed:
                seq.status = SequenceStatus.RUNNING
                self.running.append(self.waiting.popleft())
                self.recorder.run(seq.seq_id)
        return seqs, Stop(StopReason.QUEUE_EMPTY)
        # END SOLUTION

    def _decode(self) -> tuple[list[Sequence], Stop, list[Preemption]]:
        """The sequences that decode, in order, up to `max_num_seqs`; why it ended, and who was preempted.

        The order of `running` stays: those that decoded stand in front again, in the order they had.

        A decode step may fall between two chunks of a long prompt, which waits then and holds blocks. When a sequence
        whose turn it is cannot append, that prompt gives all its blocks up before a running sequence is preempted. It
        has not run, so it is not listed among the preempted. It begins anew later, with chunk 1: whoever takes its
        blocks sets `num_chunks` to 0, as `Scheduler.preempt` does for a victim.
        """
        # BEGIN SOLUTION
        limit, seqs, preempted = self.max_num_seqs, [], []
        while self.running and len(seqs) < limit:
            seq = self.running.popleft()
            if not self.block_manager.can_append(seq):  # else the head of waiting may need what another one holds
                for half_prompt in self.waiting:
                    self.block_manager.deallocate(half_prompt)
                    half_prompt.num_chunks = 0
            while self.running and not self.block_manager.can_append(seq):
                preempted.append(self.preempt(self.running.pop(), on_behalf_of=seq))
            if not self.block_manager.can_append(seq):
                preempted.append(self.preempt(seq))
                break
            seq.num_scheduled_tokens = 1
            self.block_manager.may_append(seq)
            seqs.append(seq)
        stop = self.batch_full(limit) if self.running else Stop(StopReason.RUNNING_EMPTY)
        self.running.extendleft(reversed(seqs))
        return seqs, stop, preempted
        # END SOLUTION
