"""What the overlapped loop adds to a scheduler: plans that are under way, and tokens that are not known yet.

`Overlapped` is mixed into any scheduler class that changes `schedule()` alone (see `overlapped`). It splits
`postprocess` into two halves: `advance` when a plan is under way, and `resolve` when its tokens are known. Which
sequences run is still the class's own decision.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from collections.abc import Sequence as Tokens
from inspect import getattr_static

from nanoinfer.core.overlap.in_flight import PENDING
from nanoinfer.core.plan import StepPlan
from nanoinfer.core.scheduler import Scheduler
from nanoinfer.core.sequence import Sequence, SequenceStatus
from nanoinfer.reasons import FinishReason

CHANGED_HERE = ("postprocess", "abort", "undo", "preempt")
USED_HERE = ("_count_computed", "_finish_reason", "_at_max_length", "_finish", "_retire")


def is_pending(seq: Sequence) -> bool:
    """Whether the last token of `seq` is sampled but not known yet."""
    return seq.last_token == PENDING


class Overlapped(Scheduler):
    """The scheduler's additions; stands before a scheduler class among the bases."""

    def schedule(self) -> StepPlan:
        plan = super().schedule()
        # A victim of the step before waits with a pending token until that step is resolved, and cannot come back
        # sooner: a policy must not admit in a `schedule()` that preempts.
        assert not any(row.chunk and is_pending(row.seq) for row in plan.rows), "prefill of a token not known yet"
        return plan

    def gives_up_slot(self, seq: Sequence) -> bool:
        """Whether `seq`, whose newest token is pending, leaves at once: as soon as its length alone says it ends here.

        Its blocks are free then: the device runs plans in order, so their next owner writes later. A policy may
        override this to keep the sequence until its last token is known, and must then leave it out of `schedule()`.
        """
        return self._at_max_length(seq)

    def advance(self, plan: StepPlan) -> None:
        """Take in that `plan` is under way: each sequence that it completes gets a pending token."""
        for row in plan.rows:
            seq = row.seq
            if not seq.is_finished and self._count_computed(seq):
                seq.append_token(PENDING)
                if self.gives_up_slot(seq):
                    self._finish(seq, FinishReason.LENGTH)

    def resolve(self, plan: StepPlan, token_ids: Tokens[int]) -> None:
        """Take in the tokens of a plan that `advance` has seen; later rows of a sequence that one ends are wasted."""
        plan.check_tokens(token_ids)
        for row, token_id in zip(plan.rows, token_ids, strict=True):
            seq = row.seq
            if not is_pending(seq):  # a middle chunk, or ended before this plan ran
                continue
            row.token_id = seq.replace_last_token(token_id)
            reason = self._finish_reason(seq)
            if reason and not seq.is_finished:
                self._finish(seq, reason)
            elif reason and reason is not seq.finish_reason:  # it ended for its length before this token was known
                self.recorder.finish(seq.seq_id, reason, "ended")
                seq.finish_reason = reason

    def _finish(self, seq: Sequence, reason: FinishReason) -> None:
        if seq.status is SequenceStatus.RUNNING:
            super()._finish(seq, reason)
        else:  # preempted meanwhile
            self.recorder.finish(seq.seq_id, reason, "waiting")
            self._retire(seq, reason)

    def abort(self, seq_id: int) -> None:
        """As `Scheduler.abort`; a pending token is forgotten."""
        if seq_id in self.sequences and is_pending(self.sequences[seq_id]):
            self.sequences[seq_id].drop_last_token()
        super().abort(seq_id)

    def lose(self, plans: Iterable[StepPlan], wanted: Container[int]) -> None:
        """Take back plans whose tokens will never come, newest first: what was computed since cannot be trusted.

        Every sequence is computed again, those among the `wanted` ids too that have ended for their length; the prefix
        cache forgets everything.
        """
        for plan in plans:
            for row in reversed(plan.rows):
                if is_pending(row.seq):
                    row.seq.drop_last_token()
                    if row.seq.is_finished and row.seq_id in wanted:
                        self._revive(row.seq)
            self.undo(plan)
        for seq in self.waiting:  # one between two chunks may hold blocks
            self.block_manager.deallocate(seq)
            seq.num_scheduled_tokens = seq.num_chunks = 0
        self.block_manager.reset_prefix_cache()

    def _revive(self, seq: Sequence) -> None:
        seq.status, seq.finish_reason = SequenceStatus.WAITING, None
        seq.is_prefill, seq.num_chunks = True, 0
        self.sequences[seq.seq_id] = seq
        self.waiting.append(seq)
        self.recorder.arrive(seq.seq_id, seq.num_prompt_tokens)


def overlapped(cls: type[Scheduler]) -> type[Overlapped]:
    """`cls` with what overlapping needs, under its own name.

    Raises:
        TypeError: see `why_not`.
    """
    reason = why_not(cls)
    if reason:
        raise TypeError(f"overlap=True does not work with {cls.__name__}: {reason}; set overlap=False")
    if issubclass(cls, Overlapped):
        return cls
    named = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    return type(cls.__name__, (Overlapped, cls), named)


def why_not(cls: type) -> str:
    """Why the overlapped loop cannot run `cls`; empty if it can."""
    if not issubclass(cls, Scheduler):
        return "it does not inherit from nanoinfer's Scheduler"
    changed = [n for n in CHANGED_HERE + USED_HERE if getattr_static(cls, n) is not getattr_static(Scheduler, n)]
    if changed and not issubclass(cls, Overlapped):
        return f"it has its own {', '.join(changed)}, and overlapping needs a class that changes schedule() alone"
    return ""
