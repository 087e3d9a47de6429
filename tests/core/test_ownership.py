"""Each piece of scheduling state has one owner: read from the source, assignment by assignment."""

import ast
from pathlib import Path

import nanoinfer

ROOT = Path(nanoinfer.__file__).parent
SCHEDULERS = {"core/scheduler.py", "core/overlap/scheduler.py", "core/policies/mixed.py"}
BLOCKS = {"core/sequence.py", "core/block_manager.py"}
OWNERS = (
    dict.fromkeys(("waiting", "running"), SCHEDULERS)
    | dict.fromkeys(("ref_count", "free_block_ids", "hash_to_block_id", "block_table", "token_ids"), BLOCKS)
    | dict.fromkeys(("num_computed_tokens", "num_cached_tokens", "num_scheduled_tokens"), SCHEDULERS | BLOCKS)
    | dict.fromkeys(("num_chunks", "num_preemptions", "is_prefill"), SCHEDULERS | BLOCKS)
)
MUTATORS = {"append", "appendleft", "extend", "extendleft", "insert", "pop", "popleft", "popitem", "remove", "clear"}
# The trace folds its own copies of the queues, and the course plants faults on purpose.
PARTS = ("core", "engine", "sim", "runner", "parallel", "models", "bench")


def edits(tree: ast.AST) -> set[str]:
    """Attributes of any object that the code assigns, deletes or calls a mutating method on."""
    found = set()
    for node in ast.walk(tree):
        targets = []
        if isinstance(node, (ast.Assign, ast.Delete)):
            targets = node.targets
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
            targets = [node.target]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MUTATORS:
            targets = [node.func.value]
        for target in targets:
            for part in target.elts if isinstance(target, ast.Tuple) else [target]:
                while isinstance(part, ast.Subscript):
                    part = part.value
                if isinstance(part, ast.Attribute):
                    found.add(part.attr)
    return found


def test_queues_counters_and_blocks_are_edited_by_their_owners_alone():
    files = [path for part in PARTS for path in (ROOT / part).rglob("*.py")]
    owned = {path.relative_to(ROOT).as_posix(): edits(ast.parse(path.read_text())) & OWNERS.keys() for path in files}
    assert owned["core/scheduler.py"] >= {"waiting", "running", "num_chunks"}, "else this test sees nothing"
    assert owned["core/block_manager.py"] >= {"ref_count", "free_block_ids", "block_table"}
    strangers = {f"{file} edits {name}" for file, names in owned.items() for name in names if file not in OWNERS[name]}
    assert not strangers
