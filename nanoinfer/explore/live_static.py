"""What stands for a live explorer where there is no kernel: in a saved notebook, or on a page."""

from __future__ import annotations

from typing import Any

from nanoinfer.explore.live_sequences import SequenceList
from nanoinfer.explore.page import escaped
from nanoinfer.explore.shell import Exploration
from nanoinfer.trace.trace import Trace

WITHOUT_KERNEL = (
    "This is the live explorer of an engine. Its buttons need a running kernel: run the cell to use it. "
    "A replay that needs none is shown by the trace's own explore()."
)


def static_forms(trace: Trace, sequences: SequenceList, theme: str) -> dict[str, Any]:
    """HTML and text, and a picture once a step has run: the replay up to now, or who is queued."""
    if trace.steps:
        replay = Exploration(trace, step=-1, theme=theme)
        html = f"<p>{escaped(WITHOUT_KERNEL)} Recorded when it was shown:</p>{replay.html}"
        words = {"text/html": html, "text/plain": f"{WITHOUT_KERNEL}\n\n{replay.text}"}
        return replay._repr_mimebundle_() | words
    lines = [f"sequence {seq_id}: {sequences.prompt(seq_id)[:200]}" for seq_id in sequences.told]
    queued = "\n".join(["No step had run when it was shown.", *lines])
    html = f'<p>{escaped(WITHOUT_KERNEL)}</p><pre style="white-space:pre-wrap">{escaped(queued)}</pre>'
    return {"text/html": html, "text/plain": f"{WITHOUT_KERNEL}\n\n{queued}"}
