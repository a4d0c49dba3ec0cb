"""A fresh server for each test and Debian's chromium to look at it with."""

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

import pytest
from playwright.sync_api import Page, sync_playwright

from tests.conftest import ROOT

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-sync",
]


@contextmanager
def serve(folder: Path) -> Iterator[tuple[str, subprocess.Popen]]:
    """A server that nobody has visited yet, its address and its process; its runs are kept in `folder`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--server.headless=true", f"--server.port={port}", "--server.address=127.0.0.1"]
    command = [sys.executable, "-m", "streamlit", "run", "app.py", *options]
    environment = {**os.environ, "LOUPE_RUNS": str(folder / "runs")}
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, env=environment)
        try:
            _wait_for(f"http://127.0.0.1:{port}/_stcore/health", process)
            yield f"http://127.0.0.1:{port}", process
        finally:
            process.terminate()
            process.wait(20)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The address of a server that nobody has visited yet."""
    with serve(tmp_path) as (address, _):
        yield address


@pytest.fixture
def page() -> Iterator[Page]:
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser.new_page(viewport={"width": 1280, "height": 720})
        browser.close()


def settled(page: Page, seconds: int = 90) -> None:
    """Waits until Streamlit has drawn everything."""
    page.wait_for_timeout(300)
    state = "[data-testid=stApp][data-test-connection-state=CONNECTED][data-test-script-state=notRunning]"
    page.wait_for_selector(state, timeout=1000 * seconds)
    page.wait_for_function("document.querySelectorAll('[data-testid=stSkeleton]').length === 0", timeout=1000 * seconds)
    page.wait_for_timeout(300)


def _wait_for(address: str, process: subprocess.Popen) -> None:
    for _ in range(120):
        assert process.poll() is None, "the server ended"
        try:
            urllib.request.urlopen(address, timeout=1).close()
        except OSError:
            time.sleep(0.5)
        else:
            return
    raise TimeoutError(address)
