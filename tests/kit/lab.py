"""The system's Chromium, and a JupyterLab of its own on a free port, with nothing of the user's settings."""

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
FOLDERS = [
    "JUPYTER_CONFIG_DIR",
    "JUPYTER_DATA_DIR",
    "JUPYTER_RUNTIME_DIR",
    "JUPYTERLAB_SETTINGS_DIR",
    "JUPYTERLAB_WORKSPACES_DIR",
    "IPYTHONDIR",
    "MPLCONFIGDIR",
]


@contextmanager
def chromium() -> Iterator[Any]:
    """The browser, without a window. Playwright's sync interface runs once a process.

    Raises:
        RuntimeError: there is none.
    """
    from playwright.sync_api import sync_playwright

    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        raise RuntimeError("no Chromium found; install the system's package or set CHROMIUM to its path")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=CHROMIUM_FLAGS)
        yield browser
        browser.close()


@contextmanager
def jupyter_lab(root: Path, home: Path, dark: bool = False) -> Iterator[str]:
    """Serve `root`; settings and logs go to `home`. Yields the base URL."""
    environment = os.environ | {name: str(home / name.lower()) for name in FOLDERS} | {"JUPYTER_PREFER_ENV_PATH": "1"}
    write_settings(home / "jupyterlab_settings_dir" / "@jupyterlab" / "apputils-extension", dark)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    options = {
        "ServerApp.ip": "127.0.0.1",
        "ServerApp.port": port,
        "ServerApp.port_retries": 0,
        "ServerApp.root_dir": root,
        "ServerApp.password": "",
        "ServerApp.disable_check_xsrf": True,
        "IdentityProvider.token": "",
        "LabApp.expose_app_in_browser": True,
    }
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"]
    command += [f"--{name}={value}" for name, value in options.items()]
    with (home / "lab.log").open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            base = f"http://127.0.0.1:{port}"
            wait_for(base, process, home / "lab.log")
            yield base
        finally:
            process.terminate()
            process.wait(20)


def write_settings(folder: Path, dark: bool) -> None:
    folder.mkdir(parents=True)
    (folder / "notification.jupyterlab-settings").write_text('{"fetchNews": "false", "checkForUpdates": false}')
    if dark:
        (folder / "themes.jupyterlab-settings").write_text('{"theme": "JupyterLab Dark"}')


def wait_for(base: str, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(300):
        if process.poll() is not None:
            break
        try:
            urllib.request.urlopen(f"{base}/api/status", timeout=1)
            return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f"JupyterLab did not start:\n{log.read_text()[-2000:]}")


def open_notebook(page: Any, base: str, name: str) -> None:
    page.goto(f"{base}/lab/tree/{name}?reset")
    page.wait_for_selector(".jp-Notebook", timeout=60_000)
    ready = "() => window.jupyterapp?.shell.currentWidget?.context?.isReady"
    page.wait_for_function(ready, timeout=60_000)
    page.evaluate("() => jupyterapp.shell.currentWidget.context.sessionContext.ready")
    page.evaluate("() => jupyterapp.shell.collapseLeft()")


def run_all(page: Any) -> list[dict[str, Any]]:
    """Run every cell; all outputs in order."""
    page.evaluate("() => jupyterapp.commands.execute('notebook:run-all-cells')")
    outputs: list[dict[str, Any]] = page.evaluate(
        """() => jupyterapp.shell.currentWidget.content.widgets
             .filter(cell => cell.model.type === 'code')
             .flatMap(cell => cell.model.outputs.toJSON())"""
    )
    return outputs


def run_cell(page: Any, number: int) -> None:
    """Run one cell and wait for its end."""
    script = """async number => {
        const { content } = jupyterapp.shell.currentWidget;
        content.activeCellIndex = number;
        await jupyterapp.commands.execute('notebook:run-cell');
    }"""
    page.evaluate(script, number)


CROWDED = """root => {
    const names = 'button, input, select, summary, label, output, h3, h4, .ni-chip, .ni-entry, .ni-headline, .ni-side'
        + ', .ni-queue-label';
    const shown = [...root.querySelectorAll(names)].filter(e => e.checkVisibility() && e.getClientRects().length);
    const box = e => { // as far as what scrolls around it lets it be seen
        let { left, right, top, bottom } = e.getBoundingClientRect();
        for (let around = e.parentElement; around && around !== root; around = around.parentElement) {
            if (getComputedStyle(around).overflowY === 'visible') continue;
            const frame = around.getBoundingClientRect();
            [top, bottom] = [Math.max(top, frame.top), Math.min(bottom, frame.bottom)];
        }
        return { left, right, top, bottom };
    };
    const told = e => `${e.tagName.toLowerCase()}.${e.className} "${e.textContent.slice(0, 30)}"`;
    const edge = document.documentElement.clientWidth;
    const problems = [];
    for (const e of shown) {
        if (box(e).left < -0.5 || box(e).right > edge + 0.5) problems.push(`beyond the edge: ${told(e)}`);
        const isCut = e.clientWidth && e.scrollWidth > e.clientWidth + 1;
        if (isCut && e.tagName !== 'INPUT') problems.push(`cut: ${told(e)}`);
    }
    shown.forEach((a, i) => shown.slice(i + 1).forEach(b => {
        if (a.contains(b) || b.contains(a)) return;
        const width = Math.min(box(a).right, box(b).right) - Math.max(box(a).left, box(b).left);
        const height = Math.min(box(a).bottom, box(b).bottom) - Math.max(box(a).top, box(b).top);
        if (width > 1 && height > 1) problems.push(`overlap: ${told(a)} and ${told(b)}`);
    }));
    return problems;
}"""


def crowded(root: Any) -> list[str]:
    """What overlaps, is cut or leaves the page among the controls and headings of an explorer (a locator)."""
    problems: list[str] = root.evaluate(CROWDED)
    return problems
