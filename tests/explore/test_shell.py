"""What a notebook stores: a poster, a frame and a text, none of which can break out of its place."""

import base64
import html as html_library
import json
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest
from kit.helpers import limits, params, prompt

from nanoinfer import simulate
from nanoinfer.explore.page import live_module, module
from nanoinfer.explore.shell import Exploration as explore

EVIL = (
    "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"><!-- ' \" & \u2028"
)


class Elements(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def of(self, tag):
        return [attributes for name, attributes in self.found if name == tag]


@pytest.fixture(scope="module")
def evil():
    """A run whose texts try to become markup."""
    trace = simulate([prompt(5), prompt(4, 1)], params(3), **limits(4, 16))
    trace.requests[0].prompt = EVIL
    trace.outputs[0]["text"] = EVIL
    trace.steps[0].stop.operands["</script><b>"] = 1
    return trace


def test_a_cell_gives_html_a_picture_and_text_and_no_widget(pressed):
    bundle = explore(pressed, step=21, select=3)._repr_mimebundle_()
    assert set(bundle) == {"text/html", "image/png", "text/plain"}
    assert base64.b64decode(bundle["image/png"]).startswith(b"\x89PNG")
    assert pressed.explain(21) in bundle["text/plain"]
    json.dumps(bundle)


def test_without_scripts_the_poster_shows_and_the_frame_does_not(pressed):
    output = explore(pressed, step=21).html
    elements = Elements(output)
    assert html_library.escape(pressed.explain(21)) in output.split("<pre")[1].split("</pre>")[0]
    (poster,), (frame,) = elements.of("img"), elements.of("iframe")
    assert poster["src"].startswith("data:image/png;base64,")
    assert "display" not in poster["style"]
    assert "step 21" in poster["alt"]
    assert "display:none" in frame["style"]
    assert not elements.of("script"), "the page around the frame runs nothing"


def test_no_text_becomes_markup(evil, tmp_path):
    exploration = explore(evil, tour=[(0, 0, EVIL)])
    assert [tag for tag, _ in Elements(exploration.html).found] == ["div", "div", "img", "pre", "iframe"]
    evil.to_html(tmp_path / "page.html", tour=[(0, 0, EVIL)])
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert len(Elements(page).of("script")) == 2
    assert not Elements(page).of("img")
    assert page.count("</script>") == 2
    assert "owned" not in re.sub(r"<script.*?</script>", "", page, flags=re.S)


def test_a_page_names_no_other_resource(pressed, tmp_path):
    pressed.to_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert set(re.findall(r"https?://[^\"'\s)]+", page)) == {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert "import " not in re.sub(r"//.*|/\*.*?\*/", "", page)
    for _, attributes in Elements(page).found:
        assert not {"src", "href"} & attributes.keys()


def test_without_scripts_a_file_shows_the_text(pressed, tmp_path):
    pressed.to_html(tmp_path / "page.html", step=4)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert html_library.escape(pressed.explain(4)) in page.split("<noscript>")[1].split("</noscript>")[0]


def test_a_text_with_half_a_character_can_be_shown():
    trace = simulate([prompt(3)], params(2), **limits(4, 8))
    trace.outputs[0]["text"] = "a\ud800b"
    explore(trace).page().encode("utf-8")


def test_a_trace_without_steps_says_so():
    bundle = explore(simulate([]))._repr_mimebundle_()
    assert "without steps" in bundle["text/plain"]
    assert "without steps" in bundle["text/html"]


def test_step_and_selection_are_checked(pressed):
    assert explore(pressed, step=-1).step == len(pressed.steps) - 1
    with pytest.raises(IndexError, match="outside this trace"):
        explore(pressed, step=10_000)
    with pytest.raises(ValueError, match="no sequence 99"):
        explore(pressed, select=99)
    with pytest.raises(ValueError, match="theme must be one of"):
        explore(pressed, theme="pink")
    with pytest.raises(ValueError, match="height"):
        explore(pressed, height=0)


def test_a_tour_opens_at_its_first_place(pressed):
    exploration = explore(pressed, tour=[(5, 2, "Look here"), (7, None, "and here")])
    assert (exploration.step, exploration.select) == (5, 2)
    assert pressed.explain(5) in exploration.text


def test_the_widget_is_one_module_with_one_export():
    source = live_module()
    assert source.rstrip().endswith("export default { initialize: initializeLive, render: renderLive };")
    assert len(re.findall(r"^export ", source, flags=re.M)) == 1
    assert not re.findall(
        r"^\s*import |innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", source, flags=re.M
    )


@pytest.mark.parametrize("entry", ["boot.js", "live.js"])
def test_the_module_keeps_no_state_between_views(entry):
    """Two explorers on one page must not meet in a variable."""
    outside = [line for line in module(entry).splitlines() if re.match(r"(let|var) ", line)]
    assert not outside


def test_every_source_file_is_part_of_a_module():
    from importlib.resources import files

    names = {path.name for path in files("nanoinfer.explore").joinpath("web").iterdir()}
    sources = module("boot.js") + live_module()
    heads = set(re.findall(r"^// -+ (\w+\.js): ", sources, flags=re.M))
    assert names == {*heads, "explorer.css", "live.css", "constants.d.ts", "types.d.ts"}


def test_exploring_loads_no_torch():
    code = (
        "import sys\nfrom nanoinfer import simulate\nfrom nanoinfer.explore.shell import Exploration as explore\n"
        "explore(simulate([[1, 2, 3]]))._repr_mimebundle_()\nprint('torch' in sys.modules, 'anywidget' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["False", "False"], done.stderr
