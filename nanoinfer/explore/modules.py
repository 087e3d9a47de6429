"""ES modules put together as one, along their imports.

A page that is opened from disk may not load other files, and anywidget takes a single module. So the modules are
written one after the other, each behind those it imports, and then share one scope. Their `import` lines go, the word
`export`, and comments that begin with two stars, which are for readers of the files and for the type checker. No
bundler is needed because the modules keep to three rules, which are checked here:

- they import by name only: `import { a, b } from "./x.js";`, and do not import each other in a circle;
- they export where they declare: `export const a = ...`, at the start of a line;
- no two of them declare the same name at the top level.
"""

from __future__ import annotations

import re
from collections.abc import Callable

IMPORT = re.compile(r'^import \{([^}]+)\} from "\./([\w.]+)";\n', re.MULTILINE)
DECLARATION = re.compile(r"^(export )?((?:async )?(?:function\*?|class|const|let|var) (\w+))", re.MULTILINE)
COMMENT = re.compile(r"^[ \t]*/\*\*(?:(?!\*/).)*\*/\n|/\*\*(?:(?!\*/).)*\*/ ?", re.MULTILINE | re.DOTALL)
LEFT = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)


def joined(entry: str, read: Callable[[str], str]) -> str:
    """The module `entry` and all that it imports as one module, whose exports are those of `entry`.

    Args:
        entry: the file name of a module.
        read: gives the source of a module by its file name.

    Raises:
        RuntimeError: the modules do not keep to the rules above, or one imports what another does not export.
    """
    sources = _in_order(entry, read)
    owner: dict[str, str] = {}
    for name, source in sources.items():
        for _, _, declared in DECLARATION.findall(source):
            if declared in owner:
                raise RuntimeError(f"{owner[declared]} and {name} both declare {declared} in one scope: rename one")
            owner[declared] = name
    return "\n".join(_bare(name, source, keep_exports=name == entry) for name, source in sources.items())


def _in_order(entry: str, read: Callable[[str], str]) -> dict[str, str]:
    """Sources by file name, each behind those it imports."""
    found: dict[str, str] = {}

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            circle = " > ".join([*path[path.index(name) :], name])
            raise RuntimeError(f"modules import each other in a circle: {circle}")
        if name in found:
            return
        source = read(name)
        for names, imported in IMPORT.findall(source):
            visit(imported, (*path, name))
            exported = {declared for export, _, declared in DECLARATION.findall(found[imported]) if export}
            for missing in {part.strip() for part in names.split(",")} - exported - {""}:
                raise RuntimeError(f"{name} imports {missing}, which {imported} does not export")
        found[name] = source

    visit(entry, ())
    return found


def _bare(name: str, source: str, keep_exports: bool) -> str:
    """`source` without import lines and comments and, unless they are kept, without the word export."""
    bare = COMMENT.sub("", IMPORT.sub("", source))
    if not keep_exports:
        bare = DECLARATION.sub(r"\2", bare)
    for left in LEFT.findall(bare):
        if not (keep_exports and left.startswith("export")):
            raise RuntimeError(f"{name}: only imports by name and exported declarations can be joined, not: {left}")
    return bare
