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

    # Helpers of your own go here.

    def schedule(self) -> StepPlan:
        """The plan of the next step: a prefill batch or a decode batch, never both in one.

        It plans as the default policy does, with one exception. If `patience` prefill steps in a row have passed while
        a sequence was running, and now one is running and one is waiting, this is a decode step. Its `stop` says so
        with the number of prefill steps that have passed: `Stop("DECODE_TURN", {"waited": ..., "patience": ...})`. A
        reason may be a text. It is the turn even if the head would not have fitted: such a step does not look at it.

        A prefill step that began with `running` empty kept no sequence from decoding: it does not count. A decode step
        sets the count to 0. `patience` is 0 or more; with a very large one, every decision equals the default policy's.
        """
        # YOUR CODE HERE
        raise NotImplementedError("to be written")

    def _prefill(self) -> tuple[list[Sequence], Stop]:
        """The sequences to prefill, from the head of `waiting` on, and why it ended there: as the default policy does.

        Only the first sequence of a batch may be cut into chunks; a head that does not fit blocks those behind it.
        """
        # YOUR CODE HERE
        raise NotImplementedError("to be written")

    def _decode(self) -> tuple[list[Sequence], Stop, list[Preemption]]:
        """The sequences that decode, in order, up to `max_num_seqs`; why it ended, and who was preempted.

        The order of `running` stays: those that decoded stand in front again, in the order they had.

        A decode step may fall between two chunks of a long prompt, which waits then and holds blocks. When a sequence
        whose turn it is cannot append, that prompt gives all its blocks up before a running sequence is preempted. It
        has not run, so it is not listed among the preempted. It begins anew later, with chunk 1: whoever takes its
        blocks sets `num_chunks` to 0, as `Scheduler.preempt` does for a victim.
        """
        # YOUR CODE HERE
        raise NotImplementedError("to be written")
