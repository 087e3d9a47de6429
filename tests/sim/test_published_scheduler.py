"""The default policy against a second implementation of the published scheduling rules, on random runs.

The classes below follow the published loops line by line and share no code with the package. Requests are
chosen so that the rules this engine adds (length limit, stop ids, block size 1, refusals) do not matter.
"""

import random
from collections import deque

import pytest
from kit.helpers import limits, one_in, params

from nanoinfer import simulate


class Seq:
    def __init__(self, seq_id, ids, max_tokens):
        self.id, self.ids, self.prompt_len, self.max_tokens = seq_id, list(ids), len(ids), max_tokens
        self.table, self.cached, self.scheduled = [], 0, 0


class Pool:
    """Free list, used set and prefix map; a chained hash is the tuple of all tokens up to a block's end."""

    def __init__(self, num_blocks, size):
        self.size, self.free, self.used = size, deque(range(num_blocks)), set()
        self.refs, self.hash, self.map = [0] * num_blocks, [None] * num_blocks, {}

    def num_blocks(self, seq):
        return -(-len(seq.ids) // self.size)

    def hits(self, seq):
        found = []
        for i in range(self.num_blocks(seq) - 1):
            block = self.map.get(tuple(seq.ids[: (i + 1) * self.size]))
            if block is None:
                break
            found.append(block)
        return found

    def can_allocate(self, seq):
        hits = self.hits(seq)
        new = self.num_blocks(seq) - sum(block in self.used for block in hits)
        return -1 if len(self.free) < new else len(hits)

    def take(self, block):
        if self.hash[block] is not None and self.map.get(self.hash[block]) == block:
            del self.map[self.hash[block]]
        self.hash[block] = None
        self.hold(block)

    def hold(self, block):
        if block not in self.used:
            self.free.remove(block)
            self.used.add(block)
        self.refs[block] += 1

    def allocate(self, seq, num_cached):
        for block in self.hits(seq)[:num_cached]:
            self.hold(block)
            seq.table.append(block)
        while len(seq.table) < self.num_blocks(seq):
            self.append(seq)
        seq.cached = num_cached * self.size

    def append(self, seq):
        seq.table.append(self.free[0])
        self.take(self.free[0])

    def deallocate(self, seq):
        for block in reversed(seq.table):
            self.refs[block] -= 1
            if self.refs[block] == 0:
                self.used.remove(block)
                self.free.append(block)
        seq.table, seq.cached = [], 0

    def needs_block(self, seq):
        return len(seq.ids) % self.size == 1

    def register(self, seq):
        for i in range(seq.cached // self.size, (seq.cached + seq.scheduled) // self.size):
            key = tuple(seq.ids[: (i + 1) * self.size])
            self.hash[seq.table[i]] = key
            self.map[key] = seq.table[i]


class Published:
    def __init__(self, num_blocks, size, budget, max_seqs):
        self.pool, self.budget, self.max_seqs = Pool(num_blocks, size), budget, max_seqs
        self.waiting, self.running, self.victims = deque(), deque(), []

    def schedule(self):
        self.victims = []
        chosen = self.prefill()
        return (chosen, "prefill") if chosen else (self.decode(), "decode")

    def prefill(self):
        chosen, batched = [], 0
        while self.waiting and len(chosen) < self.max_seqs:
            seq = self.waiting[0]
            remaining = self.budget - batched
            if remaining == 0:
                break
            if not seq.table:
                hits = self.pool.can_allocate(seq)
                if hits == -1:
                    break
                need = len(seq.ids) - hits * self.pool.size
            else:
                need = len(seq.ids) - seq.cached
            if remaining < need and chosen:
                break
            if not seq.table:
                self.pool.allocate(seq, hits)
            seq.scheduled = min(need, remaining)
            batched += seq.scheduled
            if seq.cached + seq.scheduled == len(seq.ids):
                self.running.append(self.waiting.popleft())
            chosen.append(seq)
        return chosen

    def decode(self):
        chosen = []
        while self.running and len(chosen) < self.max_seqs:
            seq = self.running.popleft()
            while self.pool.needs_block(seq) and not self.pool.free:
                if self.running:
                    self.preempt(self.running.pop())
                else:
                    self.preempt(seq)
                    break
            else:
                seq.scheduled = 1
                if self.pool.needs_block(seq):
                    self.pool.append(seq)
                chosen.append(seq)
        self.running.extendleft(reversed(chosen))
        return chosen

    def preempt(self, seq):
        self.pool.deallocate(seq)
        self.waiting.appendleft(seq)
        self.victims.append(seq.id)

    def postprocess(self, chosen, phase, token_fn, eos):
        for seq in chosen:
            self.pool.register(seq)
            seq.cached += seq.scheduled
            if phase == "prefill" and seq.cached < len(seq.ids):
                continue
            seq.ids.append(token_fn(seq.ids))
            if seq.ids[-1] == eos or len(seq.ids) - seq.prompt_len == seq.max_tokens:
                self.pool.deallocate(seq)
                self.running.remove(seq)


def random_case(rng):
    size = rng.randint(2, 6)
    bases = [[rng.randrange(5) for _ in range(4 * size)] for _ in range(2)]
    prompts = [
        rng.choice(bases)[: rng.randint(0, 4 * size)] + [rng.randrange(5) for _ in range(rng.randint(1, size))]
        for _ in range(rng.randint(1, 8))
    ]
    max_tokens = [rng.randint(1, 3 * size) for _ in prompts]
    largest = max(-(-(len(p) + m - 1) // size) for p, m in zip(prompts, max_tokens, strict=True))
    spread = rng.choice([0, 5, 30])
    return {
        "prompts": prompts,
        "max_tokens": max_tokens,
        "arrivals": [rng.randint(0, spread) for _ in prompts],
        "limits": (size, largest + rng.choice([0, 0, 1, 3, 10]), rng.randint(1, 6 * size), rng.randint(1, 6)),
        "eos": rng.choice([None, 2]),
        "salt": rng.randrange(50),
    }


@pytest.mark.parametrize("shard", one_in(5, range(5)))
def test_random_runs_decide_as_the_published_rules_do(shard):
    """Rows, tables, queues, victims, free list and tokens, step by step, over 2,000 runs."""
    num_victims = 0
    for seed in range(400 * shard, 400 * (shard + 1)):
        case = random_case(random.Random(seed))
        size, nb, budget, max_seqs = case["limits"]

        def token_fn(ids, salt=case["salt"]):
            return (ids[-1] * 3 + ids[len(ids) // 2] + len(ids) + salt) % 5

        eos = case["eos"]
        trace = simulate(
            case["prompts"],
            [params(m, ignore_eos=False) for m in case["max_tokens"]],
            token_fn=token_fn,
            eos=eos,
            arrivals=case["arrivals"],
            **limits(size, nb, budget, max_seqs),
        )
        order = sorted(range(len(case["prompts"])), key=case["arrivals"].__getitem__)
        pending = [
            (case["arrivals"][i], Seq(n, case["prompts"][i], case["max_tokens"][i])) for n, i in enumerate(order)
        ]
        engine = Published(nb, size, budget, max_seqs)
        for step in trace.steps:
            while pending and pending[0][0] <= step.clock:
                engine.waiting.append(pending.pop(0)[1])
            chosen, phase = engine.schedule()
            expected = [(s.id, s.cached, s.scheduled, list(s.table)) for s in chosen]
            assert [(r.seq_id, r.num_computed, r.num_scheduled, r.block_table) for r in step.rows] == expected, seed
            assert (step.phase, [p.victim for p in step.preempted]) == (phase, engine.victims), seed
            engine.postprocess(chosen, phase, token_fn, eos)
            assert step.waiting == [s.id for s in engine.waiting], seed
            assert step.running == [s.id for s in engine.running], seed
            assert step.free_blocks == list(engine.pool.free), seed
            num_victims += len(engine.victims)
        assert not pending
        assert not engine.waiting
        assert not engine.running
    assert num_victims > 50
