"""A class watches a circuit form: start, see, stop, resume, reload, open it elsewhere; and nothing is lost when a process dies."""

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import Page, expect

from interp_core import jobs
from tests.browser.conftest import serve, settled

pytestmark = [pytest.mark.browser, pytest.mark.slow]

SECONDS = 240_000  # milliseconds that a run of half a minute may take on a busy machine


@pytest.fixture(autouse=True)
def nothing_left_running(tmp_path: Path) -> Iterator[None]:
    yield
    for job in jobs.find(tmp_path / "runs"):
        if job.active:
            jobs.stop(job)


def main(page: Page):
    return page.locator("[data-testid=stMain]")


def button(page: Page, name: str):
    return page.locator("button:not([data-testid=stBaseButton-header])").and_(
        page.get_by_role("button", name=name, exact=True)
    )  # Streamlit's own "Stop" stands in the header while a page runs


def start(page: Page, server: str) -> None:
    page.goto(f"{server}/train")
    settled(page)
    expect(page.locator("[data-testid=stSidebar]")).to_contain_text("came with the app")
    button(page, "New run").click()
    settled(page)
    button(page, "Start").click()
    expect(button(page, "Stop")).to_be_visible(timeout=30_000)
    expect(page).to_have_url(re.compile("run=circuit"))  # a reload must find this run, whatever others start meanwhile


def written(page: Page, path: Path) -> None:
    """Waits for a file that a process of the run writes."""
    deadline = time.monotonic() + 60
    while not path.is_file():
        assert time.monotonic() < deadline, path
        page.wait_for_timeout(100)


def steps(page: Page) -> int:
    """How far the run is, as the page says."""
    words = page.locator("[data-testid=stMetric]").nth(2).inner_text()
    return int(words.split(" of ")[0].split("\n")[-1].replace(",", ""))


def test_the_half_minute_preset_from_start_to_verdict(server: str, page: Page, tmp_path: Path) -> None:
    start(page, server)
    expect(main(page)).to_contain_text("of 800", timeout=60_000)
    expect(main(page)).to_contain_text("left", timeout=60_000)
    page.get_by_role("radio", name="heads form").click()
    expect(page.locator("[data-testid=stVegaLiteChart]")).to_have_count(3, timeout=60_000)
    page.wait_for_function("document.querySelector('[data-testid=stMain]').innerText.includes('800')")
    deadline = time.monotonic() + 120
    while steps(page) < 200 and time.monotonic() < deadline:
        page.wait_for_timeout(500)
    page.screenshot(path=os.environ.get("LOUPE_SHOTS", str(tmp_path)) + "/forming.png")
    button(page, "Stop").click()
    expect(button(page, "Resume")).to_be_visible(timeout=60_000)
    stood = steps(page)
    assert 200 <= stood < 800
    page.reload()
    settled(page)
    assert steps(page) == stood, "a reload finds the run where it stood"
    button(page, "Resume").click()
    expect(button(page, "Stop")).to_be_visible(timeout=30_000)
    page.goto("about:blank")  # the tab is closed; the run goes on
    page.wait_for_timeout(2000)
    page.goto(f"{server}/train?run=circuit")
    expect(main(page)).to_contain_text("800 of 800", timeout=SECONDS)
    settled(page)
    expect(page.locator("[data-testid=stException]")).to_have_count(0)
    expect(main(page)).to_contain_text("The whole run", timeout=60_000)  # it is done, and drawn as such
    settled(page)
    main(page).get_by_role("link", name="Induction").click()
    expect(page.locator("h1")).to_have_text("Induction", timeout=60_000)
    settled(page)
    expect(main(page)).to_contain_text("induction circuit present", timeout=60_000)
    assert "checkpoint=circuit" in page.url


def test_a_link_to_a_snapshot_opens_it_and_leads_on(server: str, page: Page) -> None:
    page.goto(f"{server}/train?run=induction&watch=snapshots&at=30")
    settled(page)
    expect(main(page)).to_contain_text("at step 30")
    main(page).get_by_role("slider").first.press("ArrowRight")
    settled(page)
    expect(main(page)).to_contain_text("at step 43")
    expect(page).to_have_url(re.compile("at=43"))
    page.reload()
    settled(page)
    expect(main(page)).to_contain_text("at step 43")
    expect(page.locator("[data-testid=stException]")).to_have_count(0)
    page.get_by_role("link", name="Atlas").last.click()
    settled(page)
    expect(main(page)).to_contain_text("checkpoint induction@43")
    page.goto(f"{server}/train?run=gone")
    settled(page)
    expect(page.locator("[data-testid=stSidebar]")).to_contain_text("asks for the run gone, which is not here")


def test_a_killed_trainer_and_a_killed_server_lose_nothing(page: Page, tmp_path: Path) -> None:
    with serve(tmp_path) as (server, process):
        start(page, server)
        expect(main(page)).to_contain_text("of 800", timeout=60_000)
        folder = tmp_path / "runs" / "circuit"
        written(page, folder / "circuit" / "state.pt")
        os.kill(json.loads((folder / "worker.json").read_text())["pid"], signal.SIGKILL)
        expect(main(page).or_(page.locator("[data-testid=stSidebar]")).get_by_text("was killed")).to_be_visible(
            timeout=30_000
        )
        button(page, "Resume").click()
        expect(button(page, "Stop")).to_be_visible(timeout=30_000)
        written(page, folder / "worker.json")
        trainer = psutil.Process(json.loads((folder / "worker.json").read_text())["pid"])
        os.kill(process.pid, signal.SIGKILL)
        process.wait(20)
        assert trainer.is_running()
    with serve(tmp_path) as (server, _):
        page.goto(f"{server}/train")
        settled(page)
        expect(button(page, "Stop")).to_be_visible(timeout=30_000)
        assert trainer.is_running()
        button(page, "Stop").click()
        expect(button(page, "Resume")).to_be_visible(timeout=60_000)
        button(page, "Delete").click()
        button(page, "Delete it").click()
        expect(page.locator("[data-testid=stSidebar]")).to_contain_text("came with the app", timeout=30_000)
    assert not folder.exists()
