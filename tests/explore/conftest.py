"""A browser without a kernel, and the runs it looks at."""

import random

import pytest

from nanoinfer import SamplingParams, simulate


@pytest.fixture(scope="session")
def pressed():
    """Twelve requests, most with one prefix, in a pool that is too small: hits, chunks, refusals, preemptions."""
    rng = random.Random(3)
    prefix = list(range(100, 109))
    prompts, params = [], []
    for i in range(12):
        own = [1000 + 50 * i + j for j in range(rng.randint(3, 16))]
        prompts.append(own if i % 3 == 1 else prefix + own)
        params.append(SamplingParams(max_tokens=rng.randint(6, 18)))
    arrivals = [0, 0, 1, 3, 3, 6, 10, 14, 15, 22, 24, 30]
    limits = {"kvcache_block_size": 4, "num_kvcache_blocks": 24, "max_num_batched_tokens": 16}
    return simulate(prompts, params, arrivals=arrivals, **limits)


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
