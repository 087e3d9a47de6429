"""Who may import whom. Imports are read from the source, those inside functions included."""

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

import nanoinfer

ROOT = Path(nanoinfer.__file__).parent
TORCH_FREE = ("reasons", "extras", "sampling_params", "config", "trace", "core", "sim", "viz", "explore")
BASE = ("reasons", "extras", "sampling_params", "config", "trace", "core", "sim", "explore", "cli", "demo")
NEED_AN_EXTRA = ("nanoinfer.trace.tables", "nanoinfer.explore.live")
COMES_WITH = {"PIL": "matplotlib", "traitlets": "anywidget", "IPython": "ipywidgets"}
HEAVY = {"torch", "transformers", "safetensors", "huggingface_hub", "triton", "flash_attn"}

# What each part of the package may import of the others. A part is a top-level module or folder.
MAY_IMPORT = {
    "reasons": set(),
    "extras": set(),
    "sampling_params": set(),
    "config": {"sampling_params"},
    "trace": {"reasons", "extras", "sampling_params", "config"},
    "core": {"reasons", "sampling_params", "config", "trace"},
    "sim": {"reasons", "sampling_params", "config", "trace", "core"},
    "viz": {"reasons", "sampling_params", "config", "trace"},
    "explore": {"reasons", "extras", "sampling_params", "config", "trace", "viz"},
}
ENTRY_POINTS = {"__init__", "__main__", "cli", "demo", "bench", "course"}  # these may import everything


def module_name(path: Path) -> str:
    parts = ("nanoinfer", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}


def part_of(module: str) -> str:
    return module.split(".")[1] if "." in module else "__init__"


@cache
def imports_of(module: str, inside_functions: bool = True) -> set[str]:
    """Full names of the modules that `module` imports, wherever the statement stands.

    `from nanoinfer import X` counts as an import of X's own module.
    """
    found = set()
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    for node in ast.walk(tree) if inside_functions else _at_the_top(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found.add(nanoinfer._HOME.get(alias.name, full) if node.module == "nanoinfer" else full)
                found.add(node.module)
    return {name if name in MODULES or not name.startswith("nanoinfer.") else _nearest(name) for name in found}


def _nearest(name: str) -> str:
    """`nanoinfer.core.plan.Row` is `nanoinfer.core.plan`."""
    while name not in MODULES:
        name = name.rpartition(".")[0]
    return name


def _at_the_top(tree: ast.Module):
    """Imports that run when the module is imported; what stands under `if` is for type checkers."""
    tried = [node for statement in tree.body if isinstance(statement, ast.Try) for node in ast.walk(statement)]
    return [node for node in (*tree.body, *tried) if isinstance(node, (ast.Import, ast.ImportFrom))]


def reachable(module: str, inside_functions: bool = True) -> dict[str, list[str]]:
    """Everything outside and inside the package that importing (and calling) `module` can reach, with the way there."""
    ways: dict[str, list[str]] = {}
    queue = [[module]]
    while queue:
        way = queue.pop()
        for name in imports_of(way[-1], inside_functions) - ways.keys():
            ways[name] = [*way, name]
            if name in MODULES and name != "nanoinfer":
                queue.append(ways[name])
    return ways


def test_every_import_of_the_package_names_a_module_that_exists():
    """A function-level import is only tried when somebody calls the function."""
    missing = []
    for module, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "nanoinfer":
                missing += [f"{module} imports {node.module}"] if node.module not in MODULES else []
    assert not missing


def modules_of(*parts: str) -> list[str]:
    return [module for module in MODULES if part_of(module) in parts]


def test_the_parts_this_test_speaks_of_exist():
    """Otherwise it would check nothing."""
    parts = {part_of(module) for module in MODULES}
    assert set(TORCH_FREE) | {"engine", "runner", "models"} <= parts
    assert "nanoinfer.runner.model_runner" in reachable("nanoinfer.engine.llm_engine")
    assert "torch" in reachable("nanoinfer.engine.llm_engine")


@pytest.mark.parametrize("module", modules_of(*TORCH_FREE))
def test_scheduling_trace_simulator_and_plots_reach_neither_torch_nor_transformers(module):
    for name, way in reachable(module).items():
        assert name.split(".")[0] not in HEAVY, " -> ".join(way)


@pytest.mark.parametrize("module", [m for m in modules_of(*BASE) if m not in NEED_AN_EXTRA] + ["nanoinfer.viz.theme"])
def test_importing_the_base_needs_xxhash_alone(module):
    for name, way in reachable(module, inside_functions=False).items():
        assert name.split(".")[0] in {"nanoinfer", "xxhash"} | sys.stdlib_module_names, " -> ".join(way)


def test_modules_left_out_of_the_base_do_need_an_extra():
    for module in NEED_AN_EXTRA:
        assert {"pandas", "anywidget"} & reachable(module, inside_functions=False).keys()


def test_every_package_that_is_imported_comes_with_the_base_or_an_extra():
    project = tomllib.loads((ROOT.parent / "pyproject.toml").read_text())["project"]
    declared = "\n".join(sum(project["optional-dependencies"].values(), project["dependencies"])).replace("-", "_")
    imported = {name.split(".")[0] for module in MODULES for name in imports_of(module)} - {"nanoinfer"}
    for package in imported - sys.stdlib_module_names:
        assert re.search(rf"^{COMES_WITH.get(package, package)}\b", declared, re.MULTILINE), package


@pytest.mark.parametrize("module", modules_of(*TORCH_FREE))
def test_parts_import_in_one_direction(module):
    """reasons, sampling_params, config <- trace <- core <- sim; viz and explore look at traces only.

    A trace's methods reach its views from inside a function, never at import.
    """
    part = part_of(module)
    allowed = MAY_IMPORT[part] | {part, "__init__"}
    own = {name for name in imports_of(module) if name.split(".")[0] == "nanoinfer"}
    if part == "trace":
        top = {part_of(name) for name in imports_of(module, inside_functions=False) if name in MODULES}
        assert not top & {"viz", "explore"}, f"{module} imports a view at the top"
        allowed |= {"viz", "explore"}
    assert {part_of(name) for name in own if name in MODULES} <= allowed, sorted(own)


@pytest.mark.parametrize("module", [m for m in MODULES if part_of(m) not in ENTRY_POINTS])
def test_nothing_but_the_entry_points_imports_the_engine(module):
    if part_of(module) == "engine":
        return
    assert not [name for name in imports_of(module) if name.startswith("nanoinfer.engine")]


@pytest.mark.parametrize("module", modules_of("runner", "models", "kernels"))
def test_the_model_side_knows_no_trace_no_queue_and_no_engine(module):
    own = {part_of(name) for name in imports_of(module) if name in MODULES}
    assert own <= {"reasons", "sampling_params", "config", "core", "runner", "models", "kernels", "__init__"}
    assert "nanoinfer.core.scheduler" not in imports_of(module)
    assert "nanoinfer.core.block_manager" not in imports_of(module)


def test_triton_is_imported_by_the_kernels_alone():
    """Where it is missing all else works, and who imports it first decides whether it compiles or interprets."""
    importers = {part_of(m) for m in MODULES if any(name.split(".")[0] == "triton" for name in imports_of(m))}
    assert importers == {"kernels"}


def run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    "statement",
    [
        "import nanoinfer",
        "import nanoinfer; dir(nanoinfer)",
        "from nanoinfer import simulate, Scheduler, BlockManager, Trace, compare",
        "from nanoinfer import Sequence, EngineConfig, SamplingParams",
        "import nanoinfer.cli",
        "import nanoinfer.course, nanoinfer.course.traces",
    ],
)
def test_importing_the_package_loads_no_torch(statement):
    loaded = run_python(f"{statement}\nimport sys\nprint(sorted({HEAVY!r} & sys.modules.keys()))")
    assert loaded == "[]"


def test_a_simulation_and_all_its_views_load_no_torch(tmp_path):
    """Run, explain, measure, tabulate, draw, compare, save, load, export."""
    code = f"""
import sys
from functools import cache
from pathlib import Path
from nanoinfer import SamplingParams, Trace, compare, simulate
prompts, params = [[1, 2, 3, 4, 5], [6, 7, 8]], SamplingParams(max_tokens=4)
a = simulate(prompts, params, kvcache_block_size=2)
b = simulate(prompts, params, kvcache_block_size=2, policy="mixed")
folder = Path({str(tmp_path)!r})
a.save(folder / "a.jsonl.gz")
a = Trace.load(folder / "a.jsonl.gz")
a.explain(0), a.metrics(), a.to_pandas(), a.state(0), compare(a, b)
a.timeline(), a.block_map(0), a.queues(0), a.budget()
a.to_perfetto(folder / "a.json")
print(sorted({HEAVY!r} & sys.modules.keys()))
"""
    assert run_python(code) == "[]"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        nanoinfer.no_such_name  # noqa: B018
    assert set(nanoinfer.__all__) <= set(dir(nanoinfer))
    assert set(nanoinfer.__all__) >= {
        "LLM",
        "LLMEngine",
        "SamplingParams",
        "Trace",
        "simulate",
        "compare",
        "Scheduler",
        "BlockManager",
        "Sequence",
        "EngineConfig",
    }
