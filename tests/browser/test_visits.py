"""What only a real browser shows: deep links, clicks in a chart, the first screen."""

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import settled

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def shown_head(page: Page) -> str:
    return page.locator(".st-key-head input").input_value() or page.locator(".st-key-head").inner_text().split("\n")[-1]


def test_a_deep_link_as_the_very_first_visit(server: str, page: Page) -> None:
    """Streamlit runs a page of pages/ by itself then; the guard must bring the frame."""
    page.goto(f"{server}/atlas?head=L2H1&view=one+head")
    settled(page)
    expect(page.locator("[data-testid=stException]")).to_have_count(0)
    expect(page.locator("[data-testid=stSidebarNav] a")).to_have_count(9)
    expect(page.locator("[data-testid=stSidebar]")).to_contain_text("816,640 parameters")
    expect(page.locator("h1")).to_have_text("Atlas")
    expect(page.locator("[data-testid=stVegaLiteChart]")).to_have_count(2)
    assert shown_head(page) == "L2H1"
    assert "head=L2H1" in page.url
    assert "/atlas" in page.url


def test_the_grid_of_a_first_visit_and_a_click_in_it(server: str, page: Page) -> None:
    page.goto(f"{server}/atlas")
    settled(page)
    expect(page.locator("[data-testid=stException]")).to_have_count(0)
    expect(page.locator("[data-testid=stSidebar]")).to_be_visible()
    grid = page.locator(".st-key-grid [data-testid=stVegaLiteChart]").first
    box = grid.bounding_box()
    assert box is not None
    assert box["y"] + box["height"] < 760, "claim and picture belong on the first screen"
    before = shown_head(page)
    page.mouse.click(box["x"] + 0.3 * box["width"], box["y"] + 0.8 * box["height"])  # a head of the last layer
    settled(page)
    assert shown_head(page).startswith("L3H")
    assert shown_head(page) != before
    page.reload()
    settled(page)
    assert shown_head(page).startswith("L3H"), "the address keeps the selection"


def test_the_start_page_leads_to_the_atlas(server: str, page: Page) -> None:
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(server)
    settled(page)
    page.get_by_role("link", name="in the Atlas").click()
    settled(page)
    assert "/atlas?" in page.url
    expect(page.locator("h1")).to_have_text("Atlas")
    expect(page.locator("[data-testid=stException]")).to_have_count(0)
    assert not errors


def test_a_click_in_the_map_of_parts_makes_it_the_claim(server: str, page: Page) -> None:
    page.goto(f"{server}/ablation")
    settled(page)
    expect(page.locator("[data-testid=stException]")).to_have_count(0)
    box = page.locator(".st-key-part_map [data-testid=stVegaLiteChart]").first.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + 0.2 * box["width"], box["y"] + 0.85 * box["height"])  # a head of the last layer
    settled(page)
    expect(page.locator("[data-testid=stMetric]").first).to_contain_text("loss added without L3H")
    assert "part=L3H" in page.url
    page.get_by_role("link", name="in the Atlas").click()
    settled(page)
    chosen = shown_head(page)
    assert chosen.startswith("L3H")
    for name in ("Induction", "Ablation", "Induction"):
        page.locator("[data-testid=stSidebarNav] a", has_text=name).click()
        settled(page)
        expect(page.locator("h1")).to_have_text(name)
        if name == "Ablation":
            expect(page.locator("[data-testid=stMetric]").first).to_contain_text(f"without {chosen}")
        else:
            assert shown_head(page) == chosen


def test_a_deep_link_to_the_plane_of_heads_and_a_click_in_it(server: str, page: Page) -> None:
    page.goto(f"{server}/induction?checkpoint=induction&look=heads&repeat=20")
    settled(page)
    expect(page.locator("[data-testid=stException]")).to_have_count(0)
    expect(page.locator("[data-testid=stMain]")).to_contain_text("induction circuit present")
    expect(page.locator("[data-testid=stMain]")).to_contain_text("2 copies of 20 random tokens")
    assert shown_head(page).startswith("L1H")
    plane = page.locator(".st-key-plane [data-testid=stVegaLiteChart]").first
    box = plane.bounding_box()
    assert box is not None
    assert box["y"] < 300, "claim and picture belong on the first screen"
    label = plane.locator("text=/^L0H/").first.bounding_box()  # the previous-token head lies left below its name
    if label is not None:
        page.mouse.click(label["x"] - 12, label["y"] + label["height"] / 2 + 10)
        settled(page)
    page.get_by_role("link", name="in the Atlas").click()
    settled(page)
    expect(page.locator("h1")).to_have_text("Atlas")
    assert shown_head(page).startswith("L")


def test_a_deep_link_to_a_layer_of_a_category_and_its_trap(server: str, page: Page) -> None:
    page.goto(f"{server}/ged?category=capital&layer=2&read=2048&plot=the+trap")
    settled(page)
    expect(page.locator("[data-testid=stException]")).to_have_count(0)
    expect(page.locator("h1")).to_have_text("GED")
    main = page.locator("[data-testid=stMain]")
    expect(main).to_contain_text("tokens capital")
    expect(main).to_contain_text("resid_post.2")
    expect(main).to_contain_text("From 16 samples")
    main.get_by_role("slider").first.press("ArrowRight")
    settled(page)
    expect(main).to_contain_text("From 32 samples")
    page.get_by_role("radio", name="meaning").click()
    settled(page)
    expect(main).to_contain_text("of the variance along the component is explained by which token it is")
    assert "category=capital" in page.url


def test_a_deep_link_to_a_probe_of_layer_two_and_its_stable_neurons(server: str, page: Page) -> None:
    page.goto(f"{server}/probing?category=capital&read=2048")
    settled(page)
    expect(page.locator("[data-testid=stException]")).to_have_count(0)
    expect(page.locator("h1")).to_have_text("Probing")
    main = page.locator("[data-testid=stMain]")
    chart = main.locator("[data-testid=stVegaLiteChart]").first.bounding_box()
    assert chart is not None
    assert chart["y"] < 400, "claim and picture belong on the first screen"
    main.locator(".st-key-layer label", has_text="2").click()
    settled(page)
    expect(main).to_contain_text("resid_post.2")
    expect(main).to_contain_text("capital can be read")
    page.get_by_role("radio", name="stability").click()
    settled(page)
    bars = main.locator(".st-key-frequencies [data-testid=stVegaLiteChart]").first.bounding_box()
    assert bars is not None
    page.mouse.click(bars["x"] + 70, bars["y"] + 0.6 * bars["height"])
    settled(page)
    page.get_by_role("radio", name="neuron").click()
    settled(page)
    expect(main).to_contain_text("of resid_post.2")
    expect(page.locator("[data-testid=stException]")).to_have_count(0)
    assert "category=capital" in page.url
    assert "layer=2" in page.url


def test_a_deep_link_to_a_feature_and_a_click_in_the_plane_of_all(server: str, page: Page) -> None:
    page.goto(f"{server}/sae?read=2048&feature=7")
    settled(page)
    expect(page.locator("[data-testid=stException]")).to_have_count(0)
    expect(page.locator("h1")).to_have_text("SAE")
    number = page.locator(".st-key-feature input")
    assert number.input_value() == "7"
    plane = page.locator(".st-key-feature_plane [data-testid=stVegaLiteChart]").first.bounding_box()
    assert plane is not None
    assert plane["y"] < 420, "claim and picture belong on the first screen"
    for share in (0.3, 0.4, 0.5, 0.6):  # points lie close together there
        page.mouse.click(plane["x"] + share * plane["width"], plane["y"] + 0.72 * plane["height"])
        settled(page)
        if number.input_value() != "7":
            break
    chosen = number.input_value()
    assert chosen != "7"
    page.get_by_role("radio", name="one feature").click()
    settled(page)
    assert number.input_value() == chosen
    assert f"feature={chosen}" in page.url
    page.get_by_role("radio", name="cause").click()
    settled(page)
    expect(page.locator("[data-testid=stException]")).to_have_count(0)


def test_a_deep_link_to_a_reward_and_the_way_to_the_sweep(server: str, page: Page) -> None:
    page.goto(f"{server}/tuning?track=best+of+n&reward=says+king&best=64&judge=exploit")
    settled(page)
    expect(page.locator("[data-testid=stException]")).to_have_count(0)
    expect(page.locator("[data-testid=stMetricLabel]").first).to_contain_text("reward of the best of 64")
    expect(page.locator("[data-testid=stMain]")).to_contain_text("4,096 samples of 64 characters")
    page.locator(".st-key-track").get_by_text("low-rank tuning").click()
    settled(page)
    expect(page.locator("[data-testid=stException]")).to_have_count(0)
    expect(page.locator("[data-testid=stMetricLabel]").first).to_contain_text("gain, nats")
    page.locator(".st-key-compare").get_by_text("spectrum").click()
    settled(page)
    expect(page.locator("[data-testid=stMain]")).to_contain_text("directions for 90%")
    assert "compare=spectrum" in page.url
