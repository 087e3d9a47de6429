"""Train a byte-level BPE tokenizer with Qwen's rules and save it in the layout of the published Qwen3 tokenizers.

Reads .jsonl files of documents (as make_corpus.py writes them) and plain text files, and writes
tokenizer.json and tokenizer_config.json.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

# Same names and same order as Qwen3, which puts them after the base vocabulary.
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MARKER_TOKENS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")

# Qwen's pattern cuts text before any merge: contractions, words, single digits, punctuation, line ends, spaces.
SPLIT_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CHAT_TEMPLATE = (
    "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>' + '\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
CONTEXT_LENGTH = 2048
LINES_PER_PASSAGE = 201


def document_texts(path: Path) -> Iterator[str]:
    """The documents of a .jsonl file, with a line end for each special token: merges shall not know those."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            text = json.loads(line)["text"]
            for token in SPECIAL_TOKENS:
                text = text.replace(token, "\n")
            yield text


def plain_texts(path: Path) -> Iterator[str]:
    """A plain text file in passages of some lines."""
    passage: list[str] = []
    with path.open(encoding="utf-8") as file:
        for line in file:
            passage.append(line)
            if len(passage) == LINES_PER_PASSAGE:
                yield "".join(passage)
                passage = []
    yield "".join(passage)


def training_texts(files: list[Path]) -> Iterator[str]:
    """The texts of all files."""
    for path in files:
        print(f"reading {path}")
        yield from document_texts(path) if path.suffix == ".jsonl" else plain_texts(path)


def train_tokenizer(files: list[Path], vocab_size: int) -> Tokenizer:
    """A tokenizer of exactly `vocab_size` tokens, if the texts have enough pairs to merge."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=False))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT_PATTERN), behavior="isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(SPECIAL_TOKENS) - len(MARKER_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),  # every byte, so no text is unknown
        show_progress=False,
        min_frequency=2,
    )
    tokenizer.train_from_iterator(training_texts(files), trainer)
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in SPECIAL_TOKENS])
    tokenizer.add_tokens([AddedToken(token, normalized=False, special=False) for token in MARKER_TOKENS])
    return tokenizer


def tokenizer_config(added_ids: dict[str, int | None]) -> dict[str, Any]:
    """What transformers needs besides tokenizer.json, under the names that the published repositories use."""
    return {
        "tokenizer_class": "Qwen2Tokenizer",
        "add_bos_token": False,
        "add_prefix_space": False,
        "bos_token": None,
        "unk_token": None,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "additional_special_tokens": ["<|im_start|>", "<|im_end|>"],
        "clean_up_tokenization_spaces": False,
        "errors": "replace",
        "model_max_length": CONTEXT_LENGTH,
        "split_special_tokens": False,
        "chat_template": CHAT_TEMPLATE,
        "added_tokens_decoder": {
            str(token_id): {
                "content": token,
                "lstrip": False,
                "normalized": False,
                "rstrip": False,
                "single_word": False,
                "special": token in SPECIAL_TOKENS,
            }
            for token, token_id in added_ids.items()
        },
    }


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="folder to write")
    parser.add_argument("files", type=Path, nargs="+", help="texts to learn the merges from (.jsonl or plain text)")
    parser.add_argument("--vocab-size", type=int, default=4096, help="tokens, special ones included (%(default)s)")
    arguments = parser.parse_args()
    least = len(pre_tokenizers.ByteLevel.alphabet()) + len(SPECIAL_TOKENS) + len(MARKER_TOKENS)
    if arguments.vocab_size < least:
        parser.error(f"--vocab-size must be at least {least} (bytes and special tokens), got {arguments.vocab_size}")
    if missing := [str(path) for path in arguments.files if not path.is_file()]:
        parser.error(f"no such file: {', '.join(missing)}")
    return arguments


def main() -> None:
    """Train and save."""
    arguments = parse_arguments()
    tokenizer = train_tokenizer(arguments.files, arguments.vocab_size)
    if (size := tokenizer.get_vocab_size()) < arguments.vocab_size:
        print(f"note: the texts have merges for {size} tokens only, not {arguments.vocab_size}")
    added_ids = {token: tokenizer.token_to_id(token) for token in SPECIAL_TOKENS + MARKER_TOKENS}
    arguments.output.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(arguments.output / "tokenizer.json"))
    config = json.dumps(tokenizer_config(added_ids), indent=1)
    (arguments.output / "tokenizer_config.json").write_text(config, encoding="utf-8")
    print(f"{arguments.output}: {size} tokens, the last are {added_ids}")


if __name__ == "__main__":
    main()
