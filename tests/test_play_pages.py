"""The explorers on the built pages: they come in time, and keyboard and finger can use them."""

from __future__ import annotations

import re
import time

import pytest

from support.data import toyworld
from tests import play_files
from tests.browser import AUDITS, HTML, PAGES, Tab, axe, launch, serve, unavailable

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
    if not page.endswith("index.html"):  # where it stands near the top
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
    assert "JavaScript" in tab.locator(f".tag_play-{name}").inner_text()
    context.close()
    here = opened(page, name)
    here.tab.emulate_media(media="print")
    assert here.place.locator(".cell_output img").is_visible()
    assert not here.play.is_visible()


@pytest.mark.parametrize(**MARKS)
def test_explorer_is_accessible(opened, page, name):
    here = opened(page, name)
    here.tab.evaluate(axe())
    here.play.evaluate(
        """play => {  // alone: axe-core looks through all the rest as well
          for (let e = play; e !== document.body; e = e.parentElement) {
            [...e.parentElement.children].forEach((other) => other !== e && other.remove());
          }
        }"""
    )
    for theme, width, rules in AUDITS:
        here.tab.set_viewport_size({"width": width, "height": 900})
        here.tab.evaluate("theme => { document.documentElement.dataset.theme = theme }", theme)
        here.tab.evaluate("course.settle()")
        options = {"resultTypes": ["violations"], "preload": False}
        if rules:
            options["runOnly"] = {"type": "rule", "values": rules}
        found = here.tab.evaluate("options => axe.run('.play', options)", options)
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
    assert "Tokens: 5. Characters: 20." in bpe.play.inner_text()
    bpe.play.locator("textarea").fill("🙂")
    assert pieces(bpe) == ["‹240›", "‹159›", "‹153›", "‹130›"]
    assert "No merge changes this text" in bpe.play.inner_text()
    bpe.play.locator("textarea").fill("")
    assert pieces(bpe) == [] and "Tokens: 0." in bpe.play.inner_text()
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


GPT = [page for page, name in PLACES if name == "gpt"] or ["(not built)"]
CHINESE = [page for page in GPT if page.startswith("zh/")] or ["(not built)"]


@pytest.fixture(params=[page for page in GPT if page not in CHINESE])
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


@pytest.mark.parametrize("page", CHINESE)
def test_gpt_says_the_same_in_chinese(opened, page):
    here = opened(page, "gpt")
    text, message = here.play.locator("textarea"), here.play.get_by_role("status")
    text.fill("yesterday the farmer sang songs quietly near the")
    assert shown(here)["field"][1] == "1.00" and float(shown(here)["field"][0]) > 0.4
    assert "下限 0.00" in here.play.locator(".gpt-cost").inner_text()
    text.fill("yesterday the farmex")
    assert "“farmex”不在 ToyWorld 的 970 个词里" in message.inner_text()
    assert here.problems == []


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
    taken = """square => {
        const {left, top, width, height} = square.getBoundingClientRect();
        const there = document.elementFromPoint(left + width / 2, top + height / 2);
        return there.className;
    }"""
    square = here.play.locator(".jpeg-photo .play-handle span")
    assert square.evaluate(taken) == "play-handle", "a finger on the square drags it"
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


# attention


@pytest.fixture
def attention(opened):
    return opened("chapters/transformer.html", "attention")


def row_of(here: Opened, word: str) -> tuple[list[float], float, float]:
    """Return the numbers of a word, its score and its weight."""
    row = here.play.get_by_role("group", name=word, exact=True)
    numbers = [float(s.get_attribute("aria-valuenow")) for s in row.get_by_role("slider").all()]
    weight = row.locator(".attention-weight > span").last.inner_text()
    score = row.locator(".attention-score").inner_text().replace("−", "-")
    return numbers, float(score), float(weight)


def test_attention_begins_with_the_numbers_of_the_chapter(attention):
    assert row_of(attention, "steel") == ([0, 1.2, 0.1], 0.97, 0.29)
    assert "After: (0.34, 0.77, 0.27)" in attention.play.inner_text()
    attention.play.get_by_role("button", name="the crane ate fish").click()
    assert row_of(attention, "fish") == ([1.2, 0, 0.1], 0.97, 0.29)
    assert "After: (0.79, 0.32, 0.27)" in attention.play.inner_text()
    assert attention.problems == []


def test_attention_follows_the_arrow_keys(attention):
    slider = attention.play.get_by_role("slider", name="machine of steel")
    slider.focus()
    for _ in range(8):
        attention.tab.keyboard.press("ArrowRight")
    assert row_of(attention, "steel") == ([0, 2, 0.1], 1.61, 0.44)
    attention.tab.keyboard.press("Home")
    assert row_of(attention, "steel")[0] == [0, -1, 0.1]
    assert attention.tab.evaluate("document.activeElement.getAttribute('aria-valuenow')") == "-1"
    attention.play.get_by_role("button", name="The chapter's numbers").click()
    assert row_of(attention, "steel")[0] == [0, 1.2, 0.1]
    attention.play.get_by_role("button", name="the looks").press("Enter")
    assert row_of(attention, "steel")[2] == 0.25, "zeros match everything alike"
    slider = attention.play.get_by_role("slider", name="machine of the")
    slider.press("End")
    assert row_of(attention, "the")[2] == 0.74


def test_attention_is_dragged(attention):
    number = attention.play.get_by_role("slider", name="machine of steel")
    number.scroll_into_view_if_needed()
    box = number.bounding_box()
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    attention.tab.mouse.move(*middle)
    attention.tab.mouse.down()
    attention.tab.mouse.move(middle[0] - 0.4 * box["width"], middle[1], steps=5)
    attention.tab.mouse.up()
    assert row_of(attention, "steel")[0][1] == pytest.approx(0, abs=0.11)
    attention.tab.mouse.move(*middle)
    assert row_of(attention, "steel")[0][1] == pytest.approx(0, abs=0.11), "let go"
    point = attention.play.locator(".attention-hold").nth(3)
    point.scroll_into_view_if_needed()
    box = point.bounding_box()
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    before = row_of(attention, "steel")[0]
    attention.tab.mouse.move(*middle)
    attention.tab.mouse.down()
    attention.tab.mouse.move(middle[0] + 60, middle[1] - 60, steps=5)
    attention.tab.mouse.up()
    after = row_of(attention, "steel")[0]
    assert after[0] > before[0] + 0.4 and after[1] > before[1] + 0.4 and after[2] == before[2]


# heads


@pytest.fixture
def heads(opened):
    return opened("chapters/transformer.html", "heads")


def test_heads_writes_what_is_typed_backward(heads):
    message = heads.play.get_by_role("status")
    for word in ("tokyo", "River", "banana"):
        heads.play.locator("textarea").fill(word)
        assert message.inner_text() == f"The model writes {word.lower()[::-1]}, which is right."
    heads.play.locator("textarea").fill("international")
    assert "Right would be lanoitanretni" in message.inner_text()
    heads.play.locator("textarea").fill("mon2day")
    assert "“2” is left out" in message.inner_text()
    for text in ("", "词", "x" * 40):
        heads.play.locator("textarea").fill(text)
        assert heads.play.locator(".heads-letters > button").count() <= 18
    assert heads.problems == []


def test_heads_says_who_looks_at_whom(heads):
    says = heads.play.locator(".heads-says")
    heads.play.get_by_role("button", name="Encoder looks at the word").click()
    letters = heads.play.locator(".heads-letters > button")
    assert letters.all_text_contents() == [*"monday", ">"]
    letters.nth(5).click()
    assert says.inner_text().startswith("In the encoder, head 1 of y looks at the end mark 0.")
    first = says.inner_text()
    heads.play.get_by_role("button", name="Head 2").click()
    assert says.inner_text() != first
    heads.play.get_by_role("button", name="Decoder looks back").click()
    letters = heads.play.locator(".heads-letters > button")
    assert letters.all_text_contents() == [*"yadnom", ">"]
    letters.first.click()
    assert "looks back at the start mark 1.00" in says.inner_text()


def test_heads_follows_pointer_and_arrow_keys(heads):
    says = heads.play.locator(".heads-says")
    letters = heads.play.locator(".heads-letters > button")
    letters.first.focus()
    heads.tab.keyboard.press("ArrowRight")
    assert says.inner_text().startswith("To write a,")
    heads.tab.keyboard.press("End")
    assert says.inner_text().startswith("To write the end mark,")
    assert letters.last.get_attribute("aria-pressed") == "true"
    letters.nth(2).hover()
    assert says.inner_text().startswith("To write d,")
    heads.play.locator(".heads-map [data-t='3']").first.hover()
    assert says.inner_text().startswith("To write n,")
    heights = "spans => spans.map((e) => parseFloat(e.style.height))"
    shares = heads.play.locator(".heads-bar span").evaluate_all(heights)
    assert sum(shares) == pytest.approx(100, abs=0.5)


# vectors


@pytest.fixture
def vectors(opened):
    return opened("chapters/similarity_and_analogy.html", "vectors")


def lists(here: Opened) -> dict[str, list[str]]:
    """Return the words in the list of each model."""
    return {
        part.get_attribute("aria-label"): [
            button.get_attribute("data-word") for button in part.get_by_role("button").all()
        ]
        for part in here.play.locator(".vectors-list").all()
    }


def test_vectors_finds_neighbors_of_what_is_typed(vectors):
    before = lists(vectors)
    assert len(before) == 4 and all(len(words) == 5 for words in before.values())
    vectors.play.locator("textarea:visible").fill("japan")
    assert lists(vectors) != before
    assert all("japan" not in words for words in lists(vectors).values())
    vectors.play.locator("textarea:visible").fill("qqqq")
    assert "“qqqq” is not among" in vectors.play.get_by_role("status").inner_text()
    assert vectors.play.locator(".vectors-lists.vectors-old").count() == 1
    word = lists(vectors)["GloVe's file"][0]
    vectors.play.locator(f".vectors-list [data-word={word}]").first.press("Enter")
    assert vectors.play.locator("textarea:visible").input_value() == word
    assert vectors.tab.evaluate("document.activeElement.matches('.vectors-list button')")
    assert vectors.problems == []


def test_vectors_answers_analogies_with_and_without_the_rule(vectors):
    vectors.play.get_by_role("button", name="Analogy").click()
    fields = vectors.play.locator("textarea:visible")
    for i, word in enumerate(("japan", "japanese", "germany")):
        fields.nth(i).fill(word)
    assert lists(vectors)["GloVe's file"][0] == "german"
    rule = vectors.play.get_by_role("button", name="Leave a, b and c out")
    assert rule.get_attribute("aria-pressed") == "true"
    assert all("germany" not in words for words in lists(vectors).values())
    rule.click()
    assert rule.get_attribute("aria-pressed") == "false"
    assert lists(vectors)["word2vec"][0] == "germany", "c wins"


def test_vectors_is_chosen_on_the_map(vectors):
    image = vectors.play.locator(".vectors-map svg")
    image.scroll_into_view_if_needed()
    box = image.bounding_box()
    vectors.tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    dot = vectors.play.locator(".vectors-map svg > circle").nth(300).bounding_box()
    before = vectors.play.locator("textarea:visible").input_value()
    vectors.tab.mouse.click(dot["x"] + dot["width"] / 2, dot["y"] + dot["height"] / 2)
    after = vectors.play.locator("textarea:visible").input_value()
    assert after != before
    pointed = vectors.play.locator(".vectors-pointed").text_content()
    assert pointed == after
    first = "() => document.querySelector('.vectors-map circle').getAttribute('cx')"
    place = vectors.tab.evaluate(first)
    vectors.play.get_by_role("button", name="fastText", exact=True).click()
    assert vectors.tab.evaluate(first) != place


# optimizers


@pytest.fixture
def optimizers(opened):
    return opened("chapters/training.html", "optimizers")


def said_on(here: Opened, name: str) -> str:
    return here.play.get_by_role("button", name=re.compile(f"^{name}")).inner_text()


def said_of(here: Opened) -> str:
    return here.play.locator(".optimizers-said").inner_text()


def start_of(here: Opened) -> str:
    return here.play.get_by_role("slider", name="Start").get_attribute("aria-valuetext")


def test_optimizers_begin_as_the_chapter_does(optimizers):
    for name, rate, loss in (
        ("SGD", "0.036", "0.098"),
        ("momentum", "0.02", "2e−5"),
        ("RMSProp", "0.05", "0.0051"),
        ("Adam", "0.1", "0.03"),
    ):
        found = said_on(optimizers, name)
        assert f"rate {rate}" in found and found.endswith(f"loss {loss}")
    assert "Lowest of all: momentum." in said_of(optimizers)
    assert optimizers.play.get_by_label("β of SGD").is_disabled()
    assert optimizers.problems == []


def test_optimizers_answer_the_questions_of_the_chapter(optimizers):
    rate, all_alike = optimizers.play.get_by_label("Rate of"), "This rate for all"
    optimizers.play.get_by_role("button", name=all_alike).click()
    assert said_on(optimizers, "Adam").endswith("loss 2.1")
    assert said_on(optimizers, "RMSProp").endswith("loss 0.1")
    assert "Lowest of all: momentum." in said_of(optimizers)
    rate.focus()
    optimizers.tab.keyboard.press("ArrowRight")
    assert rate.get_attribute("aria-valuetext") == "0.04"
    assert said_on(optimizers, "SGD").endswith("loss 25")
    start = optimizers.play.get_by_role("slider", name="Start")
    start.focus()
    for _ in range(10):
        optimizers.tab.keyboard.press("ArrowDown")
    assert start_of(optimizers) == "first weight -2, second weight 1"
    assert said_on(optimizers, "SGD").endswith("loss 0.06")
    rate.focus()
    while rate.get_attribute("aria-valuetext") != "0.1":
        optimizers.tab.keyboard.press("ArrowRight")
    optimizers.play.get_by_role("button", name=all_alike).click()
    for _ in range(10):
        start.press("ArrowUp")
    assert "SGD with rate 0.1 is lost" in said_of(optimizers)
    assert "Lowest of all: RMSProp." in said_of(optimizers)
    assert "over 9,999" in said_on(optimizers, "momentum")


def test_optimizers_start_where_it_is_dragged(optimizers):
    optimizers.tab.set_viewport_size({"width": 1400, "height": 900})
    before = [said_on(optimizers, name) for name in ("SGD", "momentum", "RMSProp", "Adam")]
    box = optimizers.play.get_by_role("slider", name="Start").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    optimizers.tab.mouse.move(x, y)
    optimizers.tab.mouse.down()
    optimizers.tab.mouse.move(x + 80, y + 20, steps=4)
    optimizers.tab.mouse.up()
    after = [said_on(optimizers, name) for name in ("SGD", "momentum", "RMSProp", "Adam")]
    assert all(one != two for one, two in zip(before, after, strict=True))
    right, up = map(float, re.findall(r"-?[\d.]+", start_of(optimizers)))
    assert right > -1 and up < 1.9
    optimizers.tab.mouse.move(x, y)  # the button is up: nothing follows the pointer any more
    assert after[0] == said_on(optimizers, "SGD")
    optimizers.tab.mouse.click(x, y)  # the map can be clicked too
    assert start_of(optimizers) == "first weight -2, second weight 2"
    optimizers.tab.mouse.move(x, y)
    optimizers.tab.mouse.down()
    optimizers.tab.mouse.move(x - 400, y - 400, steps=4)
    optimizers.tab.mouse.up()
    assert start_of(optimizers) == "first weight -2.8, second weight 2.2", "it stays on the map"
    assert optimizers.problems == []


def test_optimizers_are_played_with_a_finger(opened):
    phone = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
    here = opened("chapters/training.html", "optimizers", **phone)
    here.tab.set_viewport_size(phone["viewport"])
    here.play.locator("[data-rule=adam]").tap()
    assert here.play.locator("[data-rule=adam]").get_attribute("aria-pressed") == "true"
    assert here.play.get_by_label("Rate of Adam").get_attribute("aria-valuetext") == "0.1"
    here.play.locator(".optimizers-map svg").tap()  # in its middle
    assert start_of(here) != "first weight -2, second weight 2"
    style = "e => getComputedStyle(e).touchAction"
    assert here.play.get_by_role("slider", name="Start").evaluate(style) == "none", "no scrolling"


def test_optimizers_go_step_by_step_and_back_to_the_chapter(optimizers):
    first = said_on(optimizers, "Adam")
    steps = optimizers.play.get_by_role("slider", name="Steps")
    steps.press("Home")
    assert "All four stand at the start, and the loss is 33." in said_of(optimizers)
    steps.press("ArrowRight")
    points = optimizers.play.locator(".optimizers-map circle")
    assert points.count() == 2 + 3, "the start and one step, and the step of the other three"
    optimizers.play.locator("[data-rule=momentum]").click()
    beta = optimizers.play.get_by_label("β of momentum")
    assert beta.get_attribute("aria-valuetext") == "0.8"
    beta.press("Home")
    steps.press("End")
    assert points.count() == 61 + 3
    while beta.get_attribute("aria-valuetext") != "0.99":
        beta.press("ArrowRight")
    rate = optimizers.play.get_by_label("Rate of momentum")
    before = rate.get_attribute("aria-valuetext")
    while rate.get_attribute("aria-valuetext") != "0.07":
        rate.press("ArrowRight")
    assert "is lost" not in said_of(optimizers), "its loss swings, and does not grow"
    for slider in (rate, beta):
        slider.press("Home")
    while rate.get_attribute("aria-valuetext") != before:
        rate.press("ArrowRight")
    assert said_on(optimizers, "momentum").endswith("loss 0.71"), "without memory it is SGD"
    optimizers.play.get_by_role("button", name="As in the chapter").click()
    assert said_on(optimizers, "momentum").endswith("loss 2e−5")
    assert said_on(optimizers, "Adam") == first


# bert


@pytest.fixture
def bert(opened):
    return opened("chapters/bert.html", "bert")


def guesses(here: Opened) -> dict[str, list[str]]:
    """Return the numbers of BERT and of the best guess beside each word."""
    return {
        row.locator("span").first.inner_text(): row.locator(".gpt-numbers span").all_inner_texts()
        for row in here.play.locator(".bert-guess").all()
    }


def sees(here: Opened) -> list[str]:
    return here.play.locator(".bert-word span").all_inner_texts()


def losses_on(here: Opened) -> tuple[float, float]:
    """Return the expected loss and the lowest one of the place that is asked for."""
    found = here.play.locator(".bert-said").inner_text()
    cross, floor = re.search(r"BERT (\d+\.\d+) nats, best possible (\d+\.\d+)", found).groups()
    return float(cross), float(floor)


def test_bert_begins_with_the_gap_of_the_chapter(bert):
    assert " ".join(sees(bert)) == "the [MASK] in italy is one of the highest on earth ."
    best = {word: q for word, (_, q) in guesses(bert).items() if q != "0.00"}
    assert best == {"crane": "0.55", "mountain": "0.27", "volcano": "0.18"}
    assert list(guesses(bert))[0] == "crane", "the model's first guess too"
    assert "0.55" in bert.play.locator(".bert-said").inner_text()
    assert losses_on(bert)[1] == 0.99 <= losses_on(bert)[0] < 1.5
    assert bert.problems == []


def test_bert_hides_and_shows_words_by_pointer_and_by_keyboard(bert):
    word = bert.play.locator(".bert-word")
    word.nth(8).click()
    assert sees(bert)[8] == "[MASK]" and word.nth(8).get_attribute("aria-pressed") == "true"
    assert losses_on(bert)[1] > 2, "the other gap gives nothing away"
    assert bert.tab.evaluate("document.activeElement.matches('.bert-word:nth-child(9)')")
    for _ in range(7):
        bert.tab.keyboard.press("ArrowLeft")
    bert.tab.keyboard.press("Enter")
    assert sees(bert)[1] == "[MASK]", "a gap is asked for first"
    assert losses_on(bert)[1] == 2.94
    bert.tab.keyboard.press("Enter")
    assert sees(bert)[1] == "crane", "shown again"
    assert "Word 2 is shown. BERT sees “crane”" in bert.play.locator(".bert-said").inner_text()
    assert guesses(bert)["crane"][1] == "1.00"
    bert.tab.keyboard.press("Space")
    assert sees(bert)[1] == "[MASK]"
    assert losses_on(bert)[1] == 2.94, "any thing can be the one or the other"
    bert.tab.keyboard.press("End")
    bert.tab.keyboard.press("Enter")
    assert losses_on(bert) == (pytest.approx(0, abs=0.05), 0), "there is always a full stop"
    assert bert.problems == []


def test_bert_answers_the_questions_of_the_chapter(bert):
    word = bert.play.locator(".bert-word")
    assert losses_on(bert)[1] == 0.99
    for k, floor in ((8, 2.27), (1, 2.94), (1, 0), (8, 0)):
        word.nth(k).click()
        assert losses_on(bert)[1] == floor
        if floor == 2.94:
            assert losses_on(bert)[0] == 3.32
    assert sees(bert)[1] == "crane" and guesses(bert)["highest"][1] == "1.00"
    assert losses_on(bert) == (0.07, 0)
    bert.play.get_by_role("button", name="highest").first.click()
    for k, p in ((1, "<0.001"), (6, "<0.001"), (10, "<0.001"), (7, "1.00")):
        word.nth(k).click()
        if k != 1:
            word.nth(k).click()
        said = bert.play.locator(".bert-said").inner_text()
        assert f"gives this word {p}." in said, said
        if k == 1:
            assert list(guesses(bert))[0] == "german"
    bert.play.get_by_role("button", name="crane", exact=True).first.click()
    assert sees(bert) == "every crane likes [MASK] .".split()
    assert {w: q for w, (_, q) in guesses(bert).items() if q != "0.00"} == {
        "fish": "0.67",
        "snails": "0.33",
    }


def test_bert_reads_what_is_typed(bert):
    text, message = bert.play.locator("textarea"), bert.play.get_by_role("status")
    text.fill("Every crane likes [MASK] .")
    assert sees(bert) == "every crane likes [MASK] .".split()
    assert guesses(bert)["fish"][1] == "0.67"
    bert.play.locator(".bert-word").nth(3).click()
    assert sees(bert)[3] == "[MASK]", "nobody has said which word it is"
    text.fill("every penguin likes fish .")
    assert "“penguin” is not among the 303 words" in message.inner_text()
    assert sees(bert) == ["every"]
    text.fill("paris is the capital of italy .")
    bert.play.locator(".bert-word").nth(3).click()
    assert "ToyWorld has no sentence like this" in bert.play.locator(".bert-said").inner_text()
    assert {q for _, q in guesses(bert).values()} == {"–"}
    text.fill("crane " * 50)
    assert "has room for 30 words" in message.inner_text()
    text.fill("")
    assert sees(bert) == [] and "no word yet" in bert.play.locator(".bert-said").inner_text()
    assert bert.problems == []


def test_bert_draws_other_sentences(bert):
    drawn = set()
    for _ in range(6):
        bert.play.get_by_role("button", name="Another sentence").click()
        drawn.add(bert.play.locator("textarea").input_value())
        assert sees(bert).count("[MASK]") == 1
        cross, floor = losses_on(bert)
        assert cross >= floor - 0.011
    assert len(drawn) == 6
