"""Files through a real browser: one that leaves a question open, and one that brings everything along."""

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from interp_core import checkpoints, samples
from tests.browser.conftest import settled
from tests.conftest import ROOT
from tests.pages.test_upload_page import as_mingpt, zipped_hugging_face
from tests.test_checkpoints import saved

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_two_uploads_a_question_and_a_wrong_file(server: str, page: Page, tmp_path: Path) -> None:
    shipped = checkpoints.load(ROOT / "checkpoints" / "shakespeare.pt")
    written = shipped.tokenizer.decode(samples.own_windows(shipped.model, 200, 0)[:, 1:].flatten().tolist())
    (tmp_path / "mystery.pt").write_bytes(saved(as_mingpt(shipped.model)))
    (tmp_path / "its.txt").write_text(written + "".join(shipped.tokenizer.vocabulary), newline="")
    (tmp_path / "gpt.zip").write_bytes(zipped_hugging_face())
    (tmp_path / "page.pt").write_text("<!doctype html><html>not found</html>")
    page.goto(f"{server}/atlas")
    settled(page)
    page.get_by_text("Bring your own").click()
    files = page.locator("[data-testid=stFileUploader] input[type=file]")

    files.nth(1).set_input_files(tmp_path / "its.txt")
    settled(page)
    files.nth(0).set_input_files(tmp_path / "mystery.pt")
    settled(page)
    expect(page.get_by_text("How many heads does a layer of mystery have?")).to_be_visible()
    expect(page.locator("[data-testid=stMain]")).to_contain_text("Suggested: 4, by the loss.")
    page.get_by_role("button", name="This is right").click()
    settled(page)
    expect(page.locator("[data-testid=stMetricValue]").first).to_have_text("4 of 16")
    expect(page.locator("[data-testid=stMain]")).to_contain_text("checkpoint mystery (yours)")

    page.get_by_role("link", name="Ablation", exact=True).click()  # the answer goes along
    settled(page)
    expect(page.locator("[data-testid=stException]")).to_have_count(0)
    expect(page.locator("[data-testid=stMain]")).to_contain_text("checkpoint mystery (yours)")
    expect(page.locator("[data-testid=stSidebar]")).to_contain_text("4 × 4 heads")

    page.get_by_text("Bring your own").click()
    files.nth(0).set_input_files(tmp_path / "page.pt")
    settled(page)
    expect(page.locator("[data-testid=stSidebar] [data-testid=stAlert]")).to_contain_text("a web page")
    expect(page.locator("[data-testid=stMain]")).to_contain_text("checkpoint mystery (yours)")
    files.nth(0).set_input_files(tmp_path / "gpt.zip")
    settled(page)
    expect(page.locator("[data-testid=stException]")).to_have_count(0)
    expect(page.locator("[data-testid=stSidebar]")).to_contain_text("V = 279")
