"""A browser without a kernel, and the runs it looks at."""

import pytest
from kit.workloads import pressed_run


@pytest.fixture(scope="session")
def pressed():
    return pressed_run()


@pytest.fixture
def open_page(browser, tmp_path):
    """Opens HTML from disk; fails the test on any script error and on any request but for the file itself."""
    contexts, problems = [], []

    def open_page(html, width=1100, height=900, ready=True, **options):
        path = tmp_path / f"page{len(contexts)}.html"
        path.write_text(html, encoding="utf-8")
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(f"{error}\n{error.stack}"))
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: request.url == path.as_uri() or problems.append(request.url))
        page.goto(path.as_uri())
        if ready:
            page.wait_for_selector(".ni[data-ready]")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not [problem for problem in problems if not problem.startswith(("about:", "blob:"))]
