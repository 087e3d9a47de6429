"""ES modules are joined along their imports, and what would go wrong in one scope is refused."""

import re

import pytest

from nanoinfer.explore.modules import joined
from nanoinfer.explore.page import constants, module

FILES = {
    "a.js": 'import { b, Up } from "./b.js";\nimport {\n  c,\n} from "./c.js";\n\nexport const a = () => b + c;\n',
    "b.js": 'import { c } from "./c.js";\nexport const b = c + 1;\nexport class Up {}\n',
    "c.js": "// import what you like\n/**\n * Of c.\n */\nexport let c = 1;\n  /** @type {T} */ (c);\n"
    "const own = 2; /** x */\n",
}


def join(entry="a.js", **changed):
    files = FILES | {f"{name}.js": source for name, source in changed.items()}
    return joined(entry, files.__getitem__)


def test_each_module_stands_once_behind_those_it_imports_and_the_entry_keeps_its_exports():
    assert join() == (
        "// import what you like\nlet c = 1;\n  (c);\nconst own = 2; \n\n"
        "const b = c + 1;\nclass Up {}\n\n"
        "\nexport const a = () => b + c;\n"
    )


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"b": "export const b = 1;\nexport class Up {}\nconst own = 3;\n"}, "b.js and c.js both declare own"),
        ({"b": 'import { a } from "./a.js";\nexport const b = 1;\n'}, r"circle: a\.js > b\.js > a\.js"),
        ({"c": "const c = 1;\n"}, "b.js imports c, which c.js does not export"),
        (
            {"c": 'import * as d from "./d.js";\nexport const c = 1;\n'},
            r"c.js: only imports by name.* not: import \* as d",
        ),
        ({"c": "export const c = 1;\nexport default c;\n"}, "c.js: only .* not: export default c;"),
        ({"c": "const c = 1;\nexport { c };\n"}, "b.js imports c, which c.js does not export"),
        ({"a": 'import b from "./b.js";\n'}, "a.js: only imports by name"),
    ],
    ids=["clash", "circle", "not exported", "namespace", "default", "list of exports", "entry"],
)
def test_what_cannot_share_a_scope_is_refused(changed, message):
    with pytest.raises(RuntimeError, match=message):
        join(**changed)


@pytest.mark.parametrize("entry", ["boot.js", "live.js", "explorer.js"])
def test_the_explorers_own_modules_can_be_joined(entry):
    assert not re.findall(r"^import ", module(entry), flags=re.M)


def test_what_python_puts_into_the_constants_is_declared():
    from importlib.resources import files

    declared = files("nanoinfer.explore").joinpath("web", "constants.d.ts").read_text(encoding="utf-8")
    names = re.findall(r"^export const (\w+)", constants(), flags=re.M)
    assert sorted(names) == sorted(re.findall(r"^export const (\w+):", declared, flags=re.M))
