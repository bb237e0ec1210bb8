"""The explorers on the built pages: they come in time, and keyboard and finger can use them."""

from __future__ import annotations

import re
import time

import pytest

from support.data import toyworld
from tests import play_files
from tests.browser import HTML, PAGES, Tab, axe, launch, serve, unavailable

PLACES = [
    (page, name)
    for page in PAGES
    for name in re.findall(r'class="cell[^"]* tag_play-([\w-]+)', (HTML / page).read_text("utf-8"))
]
MARKS = {"argnames": ("page", "name"), "argvalues": PLACES or [("(not built)", "")]}
SECONDS = 1  # from the moment a reader scrolls to an explorer
FINGER = 44  # pixels
CONTROLS = ".play :is(button, textarea, input, [tabindex='0'])"


@pytest.fixture(scope="module")
def origin():
    """Serve the book on this machine and give its address."""
    with serve() as start:
        yield start


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Start the Chromium of this machine."""
    with launch(str(tmp_path_factory.mktemp("browser"))) as running:
        yield running


class Opened:
    """A page on which a reader has scrolled to an explorer; `problems` is what went wrong."""

    def __init__(self, browser, start: str, page: str, name: str, **options):
        self.watch = Tab(browser, start, use=False)
        if options:  # a phone, or the like
            self.watch.context.close()
            self.watch = Tab(_With(browser, options), start, use=False)
        self.tab = self.watch.tab
        self.page = self.watch.open(page)
        self.asked = []
        self.tab.on("request", lambda request: self.asked.append(request.url))
        self.place = self.tab.locator(f".tag_play-{name}")
        self.seconds = self.tab.evaluate(
            """async (name) => {
              const start = performance.now();
              const place = document.querySelector(`.tag_play-${name}`);
              place.scrollIntoView({ behavior: "instant" });
              const controls = () => place.querySelectorAll(".play :is(button, input)");
              while (!controls().length && performance.now() < start + 2e4) {
                await new Promise(requestAnimationFrame);
              }
              return (performance.now() - start) / 1000;
            }""",
            name,
        )
        self.play = self.place.locator(".play")

    @property
    def problems(self) -> list[str]:
        """Return what went wrong, but for fonts that a page in a folder may not preload."""
        found = [problem for problem in self.page.problems if "/webfonts/" not in problem]
        return [problem for problem in found if not problem.endswith("net::ERR_FAILED")]

    def close(self):
        """Close the tab."""
        self.watch.context.close()


class _With:
    """A browser whose new contexts have other options."""

    def __init__(self, browser, options):
        self.browser, self.options = browser, options

    def new_context(self, **options):
        return self.browser.new_context(**{**options, **self.options})


@pytest.fixture
def opened(browser, origin):
    """Return a function that opens a page at an explorer; its tabs close after the test."""
    tabs = []

    def at(page: str, name: str, start: str = origin, **options) -> Opened:
        if not PLACES:
            unavailable("the book is not built: run `make book` first")
        tabs.append(Opened(browser, start, page, name, **options))
        return tabs[-1]

    yield at
    for tab in tabs:
        tab.close()


def test_every_explorer_has_a_place():
    if not PAGES:
        unavailable("the book is not built: run `make book` first")
    assert {name for _, name in PLACES} == set(play_files.names())


@pytest.mark.parametrize(**MARKS)
@pytest.mark.parametrize("served", [True, False], ids=["server", "folder"])
def test_explorer_comes_in_time_and_asks_nobody_else(opened, capsys, page, name, served):
    found = []
    for _ in range(3):  # a busy moment of the machine is not the page's fault
        start = {} if served else {"start": HTML.as_uri() + "/"}
        here = opened(page, name, **start)
        here.tab.locator(".play button").first.click()
        assert here.problems == []
        found.append(here.seconds)
        if found[-1] < SECONDS:
            break
    with capsys.disabled():
        print(f" {name} {min(found):.2f} s", end="")
    assert min(found) < SECONDS
    assert not here.place.locator(".cell_output").is_visible()


@pytest.mark.parametrize(**MARKS)
def test_explorer_is_loaded_only_when_it_comes_near(opened, page, name):
    here = opened(page, name)
    if page != "index.html":  # where it stands near the top
        assert f"play/{name}.data.js" in " ".join(here.asked), "asked for after scrolling"


def test_other_pages_have_none_of_it():
    for page in PAGES:
        scripts = re.findall(r'(?:src|href)="[^"]*/play/([^"?]*)', (HTML / page).read_text("utf-8"))
        names = [name for place, name in PLACES if place == page]
        wanted = [path.name for name in names for path in play_files.FOLDER.glob(f"{name}.css")]
        wanted = sorted([*wanted, "play.css", "play.js"]) if names else []
        assert sorted(scripts) == wanted, page


@pytest.mark.parametrize(**MARKS)
def test_figure_stands_where_no_script_runs_and_on_paper(opened, browser, origin, page, name):
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto(origin + page if PAGES else unavailable("the book is not built"))
    assert tab.locator(f".tag_play-{name} .cell_output img").is_visible()
    context.close()
    here = opened(page, name)
    here.tab.emulate_media(media="print")
    assert here.place.locator(".cell_output img").is_visible()
    assert not here.play.is_visible()


@pytest.mark.parametrize(**MARKS)
def test_explorer_is_accessible(opened, page, name):
    here = opened(page, name)
    here.tab.evaluate(axe())
    for theme in ("light", "dark"):
        for width in (1400, 360):
            here.tab.set_viewport_size({"width": width, "height": 900})
            here.tab.evaluate("theme => { document.documentElement.dataset.theme = theme }", theme)
            here.tab.evaluate("course.settle()")
            found = here.tab.evaluate("axe.run('.play', { resultTypes: ['violations'] })")
            faults = [
                (fault["id"], fault["nodes"][0]["html"][:200])
                for fault in found["violations"]
                if fault["impact"] in ("serious", "critical")
            ]
            assert not faults, (theme, width)
    assert here.play.locator("[aria-live], [role=status]").count()


@pytest.mark.parametrize(**MARKS)
def test_explorer_fits_a_phone_and_a_finger(opened, page, name):
    phone = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
    here = opened(page, name, **phone)
    here.tab.set_viewport_size(phone["viewport"])
    assert here.tab.evaluate("course.overflow()") == ""
    small = here.tab.evaluate(
        """([controls, least]) => [...document.querySelectorAll(controls)]
          .map((e) => [e.outerHTML.slice(0, 80), e.offsetWidth, e.offsetHeight])
          .filter(([, width, height]) => Math.min(width, height) < least)""",
        [CONTROLS, FINGER],
    )
    assert not small
    for button in here.play.locator(".play-row > button:enabled").all():
        if button.is_enabled():
            button.tap()
    assert here.tab.evaluate("course.overflow()") == ""
    assert here.problems == []


@pytest.mark.parametrize(**MARKS)
def test_explorer_is_reached_and_left_with_the_tab_key(opened, page, name):
    here = opened(page, name)
    wanted = here.tab.evaluate(
        """(controls) => [...document.querySelectorAll(controls)]
          .filter((e) => !e.disabled && e.tabIndex >= 0).length""",
        CONTROLS,
    )
    here.play.locator(CONTROLS.removeprefix(".play ")).first.focus()
    reached = 0
    while here.tab.evaluate("document.activeElement.matches('.play *')") and reached < 100:
        style = "getComputedStyle(document.activeElement)"
        assert here.tab.evaluate(f"{style}.outlineStyle") != "none", "the focus is seen"
        reached += 1
        here.tab.keyboard.press("Tab")
    assert reached == wanted


@pytest.mark.parametrize(**MARKS)
@pytest.mark.parametrize("width", [1400, 360])
def test_the_page_keeps_room_for_it(opened, page, name, width):
    here = opened(page, name, viewport={"width": width, "height": 740})
    here.tab.set_viewport_size({"width": width, "height": 740})
    height = "place => place.offsetHeight"
    after = here.place.evaluate(height)
    here.place.evaluate("place => place.querySelector('.play').remove()")
    here.place.evaluate("place => place.classList.remove('played')")
    assert here.place.evaluate(height) == pytest.approx(after, abs=0.15 * after)


@pytest.mark.parametrize(**MARKS)
def test_nothing_moves(opened, page, name):
    here = opened(page, name)
    moving = here.tab.evaluate(
        """() => [...document.querySelectorAll(".play, .play *")].filter((e) => {
          const style = getComputedStyle(e);
          return style.animationName !== "none" || parseFloat(style.transitionDuration) > 0;
        }).map((e) => e.outerHTML.slice(0, 80))"""
    )
    assert not moving


# bpe


@pytest.fixture
def bpe(opened):
    return opened("chapters/bpe.html", "bpe")


def pieces(here: Opened) -> list[str]:
    return here.play.locator(".bpe-piece span").all_text_contents()


def test_bpe_cuts_what_is_typed(bpe):
    bpe.play.locator("textarea").fill("people people People")
    assert pieces(bpe) == ["people", "·people", "·P", "e", "ople"]
    assert "5 tokens for 20 characters" in bpe.play.inner_text()
    bpe.play.locator("textarea").fill("🙂")
    assert pieces(bpe) == ["‹240›", "‹159›", "‹153›", "‹130›"]
    assert "No merge changes this text" in bpe.play.inner_text()
    bpe.play.locator("textarea").fill("")
    assert pieces(bpe) == [] and "0 tokens" in bpe.play.inner_text()
    assert bpe.problems == []


def test_bpe_replays_the_merges_by_keyboard_and_by_pointer(bpe):
    slider = bpe.play.locator("input[type=range]")
    slider.focus()
    bpe.tab.keyboard.press("Home")
    assert pieces(bpe) == list("What·is·the·city·but·the·people?")
    assert "every byte is a piece of its own" in bpe.play.inner_text()
    lengths = [len(pieces(bpe))]
    for n in range(1, int(slider.get_attribute("max")) + 1):
        bpe.tab.keyboard.press("ArrowRight")
        assert slider.get_attribute("aria-valuetext").startswith(f"{n} of")
        lengths.append(len(pieces(bpe)))
        assert bpe.play.locator(".bpe-fresh").count(), "what the merge has made is framed"
    assert all(a > b for a, b in zip(lengths, lengths[1:], strict=False))
    assert pieces(bpe) == ["What", "·is", "·the", "·city", "·but", "·the", "·people", "?"]
    bpe.play.get_by_role("button", name="One merge back").click()
    assert len(pieces(bpe)) == lengths[-2]
    box = slider.bounding_box()
    middle = box["y"] + box["height"] / 2
    bpe.tab.mouse.move(box["x"] + box["width"] - 8, middle)
    bpe.tab.mouse.down()
    bpe.tab.mouse.move(box["x"] + 2, middle, steps=5)
    bpe.tab.mouse.up()
    assert len(pieces(bpe)) == lengths[0], "dragged to the left end"


def test_bpe_says_what_a_piece_is_made_of(bpe):
    first = bpe.play.locator(".bpe-piece").first
    first.focus()
    bpe.tab.keyboard.press("ArrowRight")
    found = bpe.play.locator(".bpe-detail").inner_text()
    assert re.search(r"·is has the number \d+ and the bytes 32 105 115\. Merge \d+ makes it", found)
    bpe.tab.keyboard.press("End")
    assert "? has the number 30 and the bytes 63." in bpe.play.locator(".bpe-detail").inner_text()


# gpt


@pytest.fixture(params=[page for page, name in PLACES if name == "gpt"] or ["(not built)"])
def gpt(opened, request):
    return opened(request.param, "gpt")


def shown(here: Opened) -> dict[str, list[str]]:
    """Return the numbers of model and truth beside each word."""
    return {
        row.get_attribute("data-word"): row.locator(".gpt-numbers span").all_text_contents()
        for row in here.play.locator("button.gpt-row").all()
    }


def written(here: Opened) -> str:
    return here.play.locator("textarea").input_value()


def test_gpt_shows_the_truth_beside_the_model(gpt):
    gpt.play.locator("textarea").fill("yesterday the farmer sang songs quietly near the")
    assert shown(gpt)["field"][1] == "1.00"
    assert float(shown(gpt)["field"][0]) > 0.4
    assert "floor 0.00" in gpt.play.locator(".gpt-cost").inner_text()
    gpt.play.locator("textarea").fill("Mary often")
    truth = toyworld.next_token_log_probs(["mary", "often"])
    for word, (_, true) in shown(gpt).items():
        wanted = 2.718281828 ** truth[word] if word in truth else 0
        assert float(true.lstrip("<")) == pytest.approx(wanted, abs=0.006)
    assert gpt.problems == []


def test_gpt_explains_a_word_that_it_does_not_know(gpt):
    message = gpt.play.get_by_role("status")
    gpt.play.locator("textarea").fill("yesterday the farmex")
    assert "“farmex” is not among the 970 words" in message.inner_text()
    gpt.play.locator("button.gpt-row").first.click()
    assert "not among" not in message.inner_text()
    assert re.fullmatch(r"yesterday the \w+", written(gpt))


def test_gpt_offers_the_words_that_begin_as_typed(gpt):
    gpt.play.locator("textarea").fill("yesterday the f")
    assert all(word.startswith("f") for word in shown(gpt)) and len(shown(gpt)) > 3
    assert list(shown(gpt))[0] == "farmer", "the likeliest first"
    gpt.play.locator("button.gpt-row").first.click()
    assert written(gpt) == "yesterday the farmer"
    assert not all(word.startswith("f") for word in shown(gpt))


def test_gpt_says_when_there_is_no_truth(gpt):
    gpt.play.locator("textarea").fill("paris is the capital of spain")
    cost = gpt.play.locator(".gpt-cost")
    assert "No sentence of ToyWorld goes on with “spain”" in cost.inner_text()
    assert {true for _, true in shown(gpt).values()} == {"–"}
    gpt.play.locator("textarea").fill("paris is the capital of spain . mary")
    assert "No sentence" not in cost.inner_text()


def test_gpt_is_written_with_by_keyboard_alone(gpt):
    gpt.play.locator("textarea").focus()
    gpt.tab.keyboard.press("Control+A")
    gpt.tab.keyboard.type("the farmer")
    gpt.tab.keyboard.press("Tab")
    word = gpt.tab.evaluate("document.activeElement.dataset.word")
    gpt.tab.keyboard.press("Enter")
    assert written(gpt) == f"the farmer {word}"
    assert gpt.tab.evaluate("document.activeElement.matches('.gpt-row')"), "the focus stays"
    gpt.play.get_by_role("button", name="Take one back").press("Enter")
    assert written(gpt) == "the farmer"


def test_gpt_writes_by_its_rule(gpt):
    def write() -> str:
        gpt.play.get_by_role("button", name="Start anew").click()
        gpt.play.get_by_role("button", name="Write a sentence").click()
        return written(gpt)

    assert len({write() for _ in range(4)}) > 2, "it draws"
    gpt.play.get_by_label("Temperature").press("Home")
    assert len({write() for _ in range(3)}) == 1, "greedy has one sentence"
    assert toyworld.derivations(write())
    gpt.play.get_by_label("Temperature").press("End")
    gpt.play.get_by_label("Top-k").press("Home")
    gpt.play.locator("textarea").fill("yesterday the")
    assert sum(model != "0.00" for model, _ in shown(gpt).values()) == 1, "top-k of 1"


def test_gpt_ends_with_a_text_that_is_too_long(gpt):
    gpt.play.locator("textarea").fill("the farmer . " * 70)
    assert not gpt.play.get_by_role("button", name="Write a word").is_enabled()
    assert "as long as it can be" in gpt.play.get_by_role("status").inner_text()
    started = time.perf_counter()
    gpt.play.get_by_role("button", name="Take one back").click()
    assert gpt.play.get_by_role("button", name="Write a word").is_enabled()
    assert time.perf_counter() - started < 5


# jpeg


@pytest.fixture
def jpeg(opened):
    return opened("chapters/compression.html", "jpeg")


def bits(here: Opened) -> int:
    """Return how many bits the block takes, which are those that are shown."""
    shown = "".join(here.play.locator(".jpeg-chip code").all_text_contents())
    said = int(re.search(r"(\d+) bits instead", here.play.locator(".jpeg-about").inner_text())[1])
    assert set(shown) <= {"0", "1"} and len(shown) == said
    return said


def place_of(here: Opened) -> str:
    return here.play.get_by_role("slider", name="The block").get_attribute("aria-valuetext")


def test_jpeg_begins_with_the_block_of_the_chapter(jpeg):
    assert place_of(jpeg) == "row 6, column 10" and bits(jpeg) == 89
    assert "0.99 bits a pixel, 29.0 dB" in jpeg.play.inner_text()
    assert jpeg.play.locator(".jpeg-on").count() == 15
    assert jpeg.play.locator(".jpeg-chip").count() == 16


def test_jpeg_goes_from_block_to_block_by_keyboard_and_by_pointer(jpeg):
    handle = jpeg.play.get_by_role("slider", name="The block")
    handle.focus()
    for _ in range(3):
        jpeg.tab.keyboard.press("ArrowUp")
    jpeg.tab.keyboard.press("Shift+ArrowRight")
    assert place_of(jpeg) == "row 3, column 15"
    assert bits(jpeg) < 30, "in the sky"
    jpeg.tab.keyboard.press("Home")
    assert place_of(jpeg) == "row 6, column 10"
    box = jpeg.play.locator(".jpeg-photo canvas").bounding_box()
    to = box["x"] + box["width"] * 38.5 / 40, box["y"] + box["height"] * 16.5 / 26
    start = handle.bounding_box()
    jpeg.tab.mouse.move(start["x"] + 22, start["y"] + 22)
    jpeg.tab.mouse.down()
    jpeg.tab.mouse.move(*to, steps=8)
    jpeg.tab.mouse.up()
    assert place_of(jpeg) == "row 17, column 39"
    assert bits(jpeg) > 90, "in the leaves"
    jpeg.tab.mouse.click(box["x"] + 2, box["y"] + 2)
    assert place_of(jpeg) == "row 1, column 1"
    jpeg.tab.keyboard.press("ArrowLeft")
    assert place_of(jpeg) == "row 1, column 1", "it stays on the photograph"
    assert jpeg.problems == []


def test_jpeg_is_used_with_a_finger(opened):
    phone = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
    here = opened("chapters/compression.html", "jpeg", **phone)
    box = here.play.locator(".jpeg-photo canvas").bounding_box()
    here.tab.touchscreen.tap(box["x"] + box["width"] * 0.51, box["y"] + box["height"] * 0.1)
    assert place_of(here) == "row 3, column 21"
    here.play.locator(".jpeg-tile").nth(8).tap()
    assert "1 half waves down and 0 to the right" in here.play.inner_text() or bits(here) < 20
    assert here.tab.evaluate("course.overflow()") == ""


def test_jpeg_pays_for_quality(jpeg):
    slider, found = jpeg.play.get_by_label("Quality"), []
    for quality in (1, 10, 50, 90, 100):
        slider.fill(str(quality))
        said = jpeg.play.locator(".jpeg-top p").inner_text()
        size, decibels = re.search(r"^([\d,]+) bytes .* ([\d.]+) dB", said).groups()
        found.append((int(size.replace(",", "")), float(decibels), bits(jpeg)))
    for numbers in zip(*found, strict=True):
        assert sorted(numbers) == list(numbers) and len(set(numbers)) == 5
    slider.focus()
    started = time.perf_counter()
    for _ in range(10):
        jpeg.tab.keyboard.press("ArrowLeft")
    assert time.perf_counter() - started < 5


def test_jpeg_adds_up_the_waves(jpeg):
    def error() -> float:
        said = jpeg.play.locator(".jpeg-about").inner_text()
        return float(re.search(r"typical error (\d+\.\d)", said)[1])

    waves = jpeg.play.get_by_label("Waves added up")
    waves.focus()
    jpeg.tab.keyboard.press("Home")
    errors = [error()]
    assert "No wave yet" in jpeg.play.inner_text()
    more = jpeg.play.get_by_role("button", name="One wave forth")
    for n in range(1, 16):
        more.press("Enter")
        assert f"Wave {n} of 15" in jpeg.play.inner_text()
        assert jpeg.play.locator(".jpeg-tile.jpeg-now").count() == 1
        assert jpeg.play.locator(".jpeg-chip.jpeg-now").count() == 1
        errors.append(error())
    assert errors[0] > 70 and errors[-1] == 6.6 and errors[1] > errors[5] > errors[-1]
    more.press("Enter")
    assert jpeg.tab.evaluate("document.activeElement.textContent") == "+", "the focus stays"
    jpeg.play.locator(".jpeg-tile").nth(1).click()
    assert "Wave 2 of 15, 0 half waves down and 1 to the right" in jpeg.play.inner_text()


def test_jpeg_shows_the_photograph_beside_its_copy(jpeg):
    sum_of = """() => {
      const canvas = document.querySelector(".jpeg-photo canvas");
      const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      return data.reduce((sum, x, i) => sum + x * ((i % 97) + 1), 0);
    }"""
    jpeg.play.get_by_label("Quality").fill("100")
    seen = {jpeg.tab.evaluate(sum_of)}
    jpeg.play.get_by_label("Quality").fill("5")
    seen.add(jpeg.tab.evaluate(sum_of))
    button = jpeg.play.get_by_role("button", name="Show the photograph")
    button.press("Space")
    assert button.get_attribute("aria-pressed") == "true"
    seen.add(jpeg.tab.evaluate(sum_of))
    assert len(seen) == 3


# vae


@pytest.fixture
def vae(opened):
    return opened("chapters/vae.html", "vae")


def numbers(here: Opened) -> list[float]:
    """Return the numbers of the explorer's text."""
    text = here.play.locator(".vae-about").inner_text().replace("−", "-")
    return [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", text)]


def code_of(here: Opened) -> list[float]:
    said = here.play.get_by_role("slider").get_attribute("aria-valuetext").replace("−", "-")
    return [float(number) for number in said.split(" and ")]


def seen(here: Opened, canvas: str) -> list[int]:
    """Return the gray values of a digit's canvas."""
    return here.play.locator(canvas).evaluate(
        "e => [...e.getContext('2d').getImageData(0, 0, 28, 28).data].filter((_, i) => i % 4 === 0)"
    )


RESULT = "canvas[role=img]"


def test_vae_draws_from_the_code_that_is_dragged(vae):
    handle, pictures = vae.play.get_by_role("slider"), [seen(vae, RESULT)]
    box = vae.play.locator(".vae-plane canvas").bounding_box()
    start = handle.bounding_box()
    vae.tab.mouse.move(start["x"] + 22, start["y"] + 22)
    vae.tab.mouse.down()
    for share in (0.3, 0.5, 0.8):
        vae.tab.mouse.move(box["x"] + box["width"] * share, box["y"] + box["height"] / 2, steps=4)
        assert code_of(vae) == pytest.approx([4.2 * (2 * share - 1), 0], abs=0.05)
        assert numbers(vae)[:2] == code_of(vae)
        pictures.append(seen(vae, RESULT))
    vae.tab.mouse.up()
    assert len(set(map(tuple, pictures))) == 4
    vae.tab.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert code_of(vae) == pytest.approx([0, 0], abs=0.05)
    assert numbers(vae)[2] == 100, "all codes of the prior lie farther out"
    assert vae.problems == []


def test_vae_is_walked_with_the_arrow_keys(vae):
    handle = vae.play.get_by_role("slider")
    handle.focus()
    a, b = code_of(vae)
    for key in ("ArrowRight", "ArrowRight", "ArrowUp", "Shift+ArrowDown"):
        vae.tab.keyboard.press(key)
    assert code_of(vae) == pytest.approx([a + 0.1, b + 0.05 - 0.25], abs=0.011)
    for _ in range(40):
        vae.tab.keyboard.press("Shift+ArrowLeft")
    assert code_of(vae)[0] == -4.2, "it stays on the plane"


def test_vae_asks_the_least_near_its_cloud(vae):
    for _ in range(5):
        *_, cloud, here, there = numbers(vae)
        assert here == there and 2 < cloud < 12
        vae.play.get_by_role("slider").focus()
        vae.tab.keyboard.press("Shift+ArrowRight")
        for _ in range(5):
            vae.tab.keyboard.press("Shift+ArrowUp")
        *_, after, here, there = numbers(vae)
        assert here > there and after == cloud
        vae.play.get_by_role("button", name="To its cloud").press("Enter")
        assert numbers(vae)[-1] == numbers(vae)[-2] == there
        vae.play.get_by_role("button", name="Another digit").press("Enter")


def test_vae_takes_codes_from_the_prior(vae):
    found = []
    for _ in range(20):
        vae.play.get_by_role("button", name="A code from the prior").click()
        found.append(code_of(vae))
    assert len(set(map(tuple, found))) == 20
    assert sum(a**2 + b**2 for a, b in found) / 40 == pytest.approx(1, abs=0.6)


def test_vae_reads_what_is_drawn_with_the_mouse(vae):
    vae.play.get_by_role("button", name="Draw one").click()
    assert "Draw a digit" in vae.play.inner_text()
    box = vae.play.locator(".vae-pad").bounding_box()
    vae.tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] * 0.2)
    vae.tab.mouse.down()
    vae.tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] * 0.8, steps=8)
    vae.tab.mouse.up()
    assert code_of(vae)[1] < -1.5, "a stroke lies where the ones are"
    assert sum(value == 255 for value in seen(vae, ".vae-pad")) > 30
    vae.play.get_by_role("button", name="Another digit").click()
    assert code_of(vae)[1] > -1.5
    assert vae.problems == []


def test_vae_is_drawn_in_by_keyboard_alone(vae):
    vae.play.get_by_role("button", name="Draw one").press("Enter")
    vae.play.get_by_role("application").focus()
    vae.tab.keyboard.press("Space")
    assert "The pen is down" in vae.play.get_by_role("status").inner_text()
    for _ in range(16):
        vae.tab.keyboard.press("ArrowDown")
    vae.tab.keyboard.press("Space")
    lines = numbers(vae)
    vae.tab.keyboard.press("ArrowRight")
    assert numbers(vae) == lines, "the pen is up"
    assert code_of(vae)[1] < -1.5
    vae.tab.keyboard.press("Tab")
    assert vae.tab.evaluate("document.activeElement.getAttribute('role')") == "slider"


def test_vae_is_used_with_a_finger(opened):
    phone = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
    here = opened("chapters/vae.html", "vae", **phone)
    plane = here.play.locator(".vae-plane canvas").bounding_box()
    here.tab.touchscreen.tap(plane["x"] + plane["width"] / 2, plane["y"] + plane["height"] * 0.2)
    assert code_of(here) == pytest.approx([0, 2.52], abs=0.05)
    here.play.get_by_role("button", name="Draw one").tap()
    pad = here.play.locator(".vae-pad").bounding_box()
    here.tab.touchscreen.tap(pad["x"] + pad["width"] / 2, pad["y"] + pad["height"] / 2)
    assert sum(value == 255 for value in seen(here, ".vae-pad")) > 2
    assert here.tab.evaluate("course.overflow()") == ""
