"""The app as Streamlit runs it, without a browser, on a machine without a text or a network."""

from pathlib import Path

import pooch
import pytest
from streamlit.testing.v1 import AppTest

from tests.conftest import ROOT
from ui import session

LIMIT = 90  # seconds for a page on a busy machine


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No tiny Shakespeare on this machine, no network to fetch it by, and no run."""
    monkeypatch.setattr(session, "RUNS", tmp_path / "runs")
    monkeypatch.delenv("LOUPE_DATA", raising=False)
    monkeypatch.setattr(pooch, "os_cache", lambda _: tmp_path)
    monkeypatch.setattr(pooch.HTTPDownloader, "__call__", lambda *_, **__: (_ for _ in ()).throw(ConnectionError()))


@pytest.fixture
def app(offline: None) -> AppTest:
    return AppTest.from_file(str(ROOT / "app.py"), default_timeout=LIMIT).run()


def said(app: AppTest) -> str:
    """All words on a page."""
    kinds = ("title", "markdown", "caption", "error", "warning", "info", "subheader")
    return "\n".join(str(element.value) for kind in kinds for element in app.get(kind))
