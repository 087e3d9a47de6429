"""Write a corpus of generated documents, one JSON object {"text": ...} a line."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from storygen.documents import corpus


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path, help="file to write (.jsonl)")
    parser.add_argument("--documents", type=int, required=True, help="how many documents")
    parser.add_argument("--seed", type=int, required=True, help="the same seed gives the same documents")
    parser.add_argument("--recall", action="store_true", help="short documents that only practise copying")
    arguments = parser.parse_args()
    if arguments.documents < 1:
        parser.error(f"--documents must be at least 1, got {arguments.documents}")
    return arguments


def main() -> None:
    """Write the file and report every tenth of it."""
    arguments = parse_arguments()
    report_every = max(arguments.documents // 10, 1)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    with arguments.output.open("w", encoding="utf-8") as file:
        texts = corpus(arguments.documents, arguments.seed, arguments.recall)
        for number, text in enumerate(texts, start=1):
            file.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
            if number % report_every == 0:
                print(f"{number} of {arguments.documents} documents", file=sys.stderr)
    print(f"{arguments.output}: {arguments.output.stat().st_size / 1e6:.1f} MB", file=sys.stderr)


if __name__ == "__main__":
    main()
