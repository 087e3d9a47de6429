"""What the model knows by heart: how an inference engine works, and who it is."""

from __future__ import annotations

# (ways to ask, the one answer)
FACTS: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        ("What is a token?", "What are tokens?"),
        (
            "A token is a small piece of text, such as a word or a part of a word. The model reads tokens and "
            "writes tokens, one after another."
        ),
    ),
    (
        ("What is a KV cache?", "Why do we need a KV cache?", "What does the KV cache do?"),
        (
            "A KV cache keeps the keys and values of the tokens that the model has already read. With it, each new "
            "token needs only one step of work, and the old tokens are not computed again."
        ),
    ),
    (
        ("What is prefill?", "What happens in prefill?"),
        "Prefill is the first step. The engine reads the whole prompt at once and fills the KV cache.",
    ),
    (
        ("What is decode?", "What happens in decode?"),
        (
            "Decode is the second step. The engine writes one new token at a time and adds its key and value to the "
            "cache."
        ),
    ),
    (
        ("What is continuous batching?", "How does continuous batching work?"),
        (
            "With continuous batching, new requests join the batch as soon as others finish. No request has to wait "
            "for the whole batch to end."
        ),
    ),
    (
        ("What is paged attention?", "Why is the cache split into blocks?"),
        (
            "Paged attention splits the KV cache into small blocks of the same size. A block table says where the "
            "blocks of each request are, so little memory is wasted."
        ),
    ),
    (
        ("What is prefix caching?", "How does prefix caching help?"),
        (
            "Prefix caching keeps the blocks of a prompt after it is done. If another prompt starts in the same "
            "way, the engine uses the same blocks again and skips that work."
        ),
    ),
    (
        ("What is a scheduler?", "What does the scheduler do?"),
        (
            "The scheduler decides which requests run in each step. It looks at the free memory and at the number "
            "of tokens that one step may use."
        ),
    ),
    (
        ("What is grouped query attention?", "What is GQA?"),
        (
            "In grouped query attention, several query heads share one key head and one value head. This makes the "
            "KV cache smaller."
        ),
    ),
    (
        ("What is RoPE?", "How does the model know the order of the tokens?"),
        (
            "RoPE turns the query and the key by an angle that depends on the position. So the model knows how far "
            "apart two tokens are."
        ),
    ),
    (
        ("Who are you?", "What are you?", "What model are you?"),
        (
            "I am a tiny language model with the Qwen3 design. I was trained from scratch on made-up stories, so I "
            "know very little, but I run on any laptop."
        ),
    ),
    (
        ("What can you do?", "How can you help me?"),
        (
            "I can tell short stories, answer questions about them, do small sums, count, sort words and explain "
            "how an inference engine works."
        ),
    ),
    (
        ("Hello!", "Hi!", "Hello there."),
        "Hello! I can tell you a short story or explain how I run. What would you like?",
    ),
    (
        ("Thank you!", "Thanks!"),
        "You are welcome!",
    ),
    (
        ("Goodbye!", "Bye!"),
        "Goodbye! Come back soon.",
    ),
    (
        ("What is preemption?", "What happens when a sequence is preempted?", "Can you explain preemption?"),
        (
            "When the cache has no free block, the scheduler takes all blocks away from the sequence at the tail of "
            "the running queue. That sequence goes back to the front of the waiting queue and is computed again "
            "later."
        ),
    ),
    (
        ("What is recompute?", "Why must a preempted sequence be computed again?"),
        (
            "A preempted sequence loses its blocks, so its keys and values are gone. Later the engine reads its "
            "prompt and its own words again in one prefill. Blocks that are still cached save some of that work."
        ),
    ),
    (
        ("What is chunked prefill?", "How does chunked prefill work?", "Why is a long prompt cut into chunks?"),
        (
            "A long prompt is cut into chunks that fit the token budget of a step. Each step computes one chunk, "
            "and only the last chunk gives the first new token."
        ),
    ),
    (
        ("What is the token budget?", "What does max_num_batched_tokens mean?"),
        (
            "The token budget is the largest number of prompt tokens that one step may compute. When it is used up, "
            "the scheduler stops adding prompts to the batch."
        ),
    ),
    (
        ("What does max_num_seqs mean?", "How many sequences can run in one step?"),
        (
            "It is the largest number of sequences in one batch. More sequences may be in the running queue, but "
            "only that many get a token in a step."
        ),
    ),
    (
        ("What is a block table?", "What does a block table do?"),
        (
            "A block table is like a page table. It says which physical block holds logical block zero, one, two "
            "and so on of a sequence."
        ),
    ),
    (
        ("What is a reference count?", "Why do blocks have a reference count?"),
        (
            "The reference count says how many sequences use a block. When it drops to zero, the block goes back to "
            "the free list, but its content stays until the block is used again."
        ),
    ),
    (
        ("When does a sequence need a new block?", "When is a new block taken in decode?"),
        (
            "A sequence needs a new block when its last token is the first one of a new block. That happens when "
            "the length leaves a remainder of one after division by the block size."
        ),
    ),
    (
        ("Why is a partial block not shared?", "Which blocks can be shared?"),
        (
            "Only full blocks are hashed, so only full blocks can be shared. A partial block will still change, so "
            "no other sequence may use it."
        ),
    ),
    (
        ("How is a block hashed?", "What is in the hash of a block?"),
        (
            "The hash of a block is made from its own tokens and the hash of the block before it. So the same "
            "tokens after another beginning give another hash."
        ),
    ),
    (
        ("What is the waiting queue?", "Which sequences are waiting?"),
        (
            "The waiting queue holds new requests, prompts that are not finished, and sequences that were "
            "preempted. The scheduler always looks at its head first."
        ),
    ),
    (
        ("What is the running queue?", "Which sequences are running?"),
        "The running queue holds sequences whose prompt is done. Each of them gets one new token in a decode step.",
    ),
    (
        ("What is head-of-line blocking?", "Why does a short request wait behind a long one?"),
        (
            "The scheduler looks only at the head of the waiting queue. If the head does not fit, the requests "
            "behind it must wait too, even if they are small."
        ),
    ),
    (
        ("Why does prefill come first?", "What is wrong with prefill first?"),
        (
            "Prefill first fills the batch quickly. But while new prompts keep coming, running sequences get no "
            "token, and their readers have to wait."
        ),
    ),
    (
        ("What is time to first token?", "What is TTFT?"),
        (
            "Time to first token is the time from the arrival of a request to its first new token. Waiting in the "
            "queue and prefill both count."
        ),
    ),
    (
        ("What is inter-token latency?", "What is ITL?"),
        (
            "Inter-token latency is the time between two new tokens of one sequence. A long prefill in between "
            "makes it large."
        ),
    ),
    (
        ("What is a CUDA graph?", "Why do we use CUDA graphs?"),
        (
            "A CUDA graph records all kernels of a decode step once and plays them back with one launch. That saves "
            "time on the CPU when each kernel is short."
        ),
    ),
    (
        ("What is tensor parallelism?", "How does tensor parallelism work?"),
        (
            "Tensor parallelism splits each weight matrix over several GPUs. Every GPU computes its part, and the "
            "parts are added together."
        ),
    ),
    (
        ("What is slot mapping?", "What is a slot?"),
        (
            "A slot is one place in the cache for the key and value of one token. The slot number is the block "
            "number times the block size plus the offset."
        ),
    ),
    (
        ("When does a request finish?", "How does a request end?"),
        (
            "A request ends when the model writes the end token or when it has max_tokens new tokens. Then its "
            "blocks are released."
        ),
    ),
    (
        ("Why does the scheduler reverse the list?", "What does extendleft do?"),
        (
            "The call extendleft adds items one by one on the left, so their order is turned around. Reversing the "
            "list first keeps the old order."
        ),
    ),
    (
        ("What is attention?", "How does attention work?"),
        (
            "Each new token asks a question of all tokens before it. The keys say how well each one fits, and the "
            "values are mixed by that fit."
        ),
    ),
    (
        ("What is sampling?", "What does temperature do?"),
        (
            "Sampling picks the next token by chance from the scores of the model. A low temperature makes the best "
            "token more likely, and zero always takes the best one."
        ),
    ),
    (
        ("What is an end token?", "What is EOS?"),
        (
            "The end token says that the answer is complete. When it is sampled, the sequence is finished and "
            "leaves the running queue."
        ),
    ),
)
