"""The explorers on the built pages: they come in time, and keyboard and finger can use them."""

from __future__ import annotations

import re

import pytest

from support.data import toyworld
from tests import play_files
from tests.browser import DESKTOP, HTML, PAGES, PHONE, Tab

PLACES = [
    (page, name)
    for page in PAGES
    for name in re.findall(r'class="cell[^"]* tag_play-([\w-]+)', (HTML / page).read_text("utf-8"))
]
ENGLISH = [place for place in PLACES if not place[0].startswith("zh/")]
english = pytest.mark.parametrize(("page", "name"), ENGLISH or [("(not built)", "")])
CHINESE = [place for place in PLACES if place not in ENGLISH]
SECONDS = 1  # from the moment a reader scrolls to an explorer
FINGER = 44  # pixels
CONTROLS = ".play :is(button, textarea, input, [tabindex='0'])"
TOUCH = {"viewport": PHONE, "has_touch": True, "is_mobile": True}


class Opened:
    """A page on which a reader has scrolled to an explorer."""

    def __init__(self, tab: Tab, page: str, name: str):
        self.tab, self.page = tab, tab.page
        tab.open(page)
        if "viewport" in tab.options:
            tab.page.set_viewport_size(tab.options["viewport"])
        tab.asked.clear()
        self.place = self.page.locator(f".tag_play-{name}")
        self.seconds = self.page.evaluate(
            """async (name) => {
              const start = performance.now();
              const place = document.querySelector(`.tag_play-${name}`);
              place.scrollIntoView({ behavior: "instant" });
              while (!place.querySelector(".play :is(button, input)")) {
                if (performance.now() > start + 2e4) break;
                await new Promise(requestAnimationFrame);
              }
              return (performance.now() - start) / 1000;
            }""",
            name,
        )
        self.play = self.place.locator(".play")

    def keeps_room(self) -> None:
        """The page keeps as much room for an explorer as it takes."""
        before, after = self.place.evaluate(
            """place => {
              const [play, after] = [place.querySelector(".play"), place.offsetHeight];
              play.style.display = "none";
              place.classList.remove("played");
              const before = place.offsetHeight;
              place.classList.add("played");
              play.style.display = "";
              return [before, after];
            }"""
        )
        assert before == pytest.approx(after, abs=0.15 * after)

    def press(self, *keys: str) -> None:
        """Press keys one after another."""
        for key in keys:
            self.page.keyboard.press(key)

    def slider(self, name: str):
        """Return the slider of that name, with the keyboard on it."""
        slider = self.play.get_by_role("slider", name=name)
        slider.focus()
        return slider

    def click(self, name: str) -> None:
        """Click on the button of that name."""
        self.play.get_by_role("button", name=name).first.click()

    def type(self, text: str) -> None:
        """Put a text into the box for it."""
        self.play.locator("textarea:visible").first.fill(text)

    def text(self, selector: str) -> str:
        """Return the text of a part, its minus signs as Python has them."""
        return self.play.locator(selector).inner_text().replace("−", "-")

    def drag(self, part, to: tuple[float, float], on=None) -> None:
        """Drag a part to a place of another, given as shares of that one's width and height."""
        (on or part).scroll_into_view_if_needed()
        start, box = part.bounding_box(), (on or part).bounding_box()
        self.page.mouse.move(start["x"] + start["width"] / 2, start["y"] + start["height"] / 2)
        self.page.mouse.down()
        x, y = box["x"] + box["width"] * to[0], box["y"] + box["height"] * to[1]
        self.page.mouse.move(x, y, steps=5)
        self.page.mouse.up()


@pytest.fixture
def opened(browser, origin):
    """Return a function that opens a page at an explorer; its tabs close after the test."""
    tabs = []

    def at(page: str, name: str, start: str = origin, **options) -> Opened:
        if name not in play_files.names():
            pytest.skip(f"this course has no explorer {name}")
        tabs.append(Tab(browser, start, math=False, **options))
        return Opened(tabs[-1], page, name)

    yield at
    for tab in tabs:
        assert tab.problems == []
        tab.context.close()


def test_every_explorer_has_a_place(origin):
    assert {name for _, name in ENGLISH} == set(play_files.names())


@english
def test_explorer_is_read_and_used(opened, page, name):
    here = opened(page, name)
    if here.seconds > SECONDS:  # a busy moment of the machine is not the page's fault
        here = opened(page, name)
    assert here.seconds < SECONDS
    if page != "index.html":  # where it stands near the top
        assert f"play/{name}.data.js" in " ".join(here.tab.asked), "asked for after scrolling"
    assert not here.place.locator(".cell_output").is_visible()
    here.keeps_room()
    here.page.set_viewport_size(PHONE)
    assert here.page.evaluate("course.overflow()") == []
    here.keeps_room()
    small = here.page.evaluate(
        """([controls, least]) => [...document.querySelectorAll(controls)]
          .map((e) => [e.outerHTML.slice(0, 80), e.offsetWidth, e.offsetHeight])
          .filter(([, width, height]) => Math.min(width, height) < least)""",
        [CONTROLS, FINGER],
    )
    assert not small, "a finger is wider"
    for button in here.play.locator(".play-row > button:enabled").all():
        if button.is_enabled():
            button.click()
    assert here.page.evaluate("course.overflow()") == []
    here.page.set_viewport_size(DESKTOP)
    wanted = here.page.evaluate(
        """(controls) => [...document.querySelectorAll(controls)]
          .filter((e) => !e.disabled && e.tabIndex >= 0).length""",
        CONTROLS,
    )
    here.play.locator(CONTROLS.removeprefix(".play ")).first.focus()
    here.press("Tab", "Shift+Tab")  # by the keyboard, after the clicks
    reached, style = 0, "getComputedStyle(document.activeElement).outlineStyle"
    while here.page.evaluate("document.activeElement.matches('.play *')") and reached < 100:
        assert here.page.evaluate(style) != "none", "the focus is seen"
        reached += 1
        here.press("Tab")
    assert reached == wanted, "the Tab key reaches every control, and leaves"
    assert here.play.locator("[aria-live], [role=status]").count()
    here.page.emulate_media(media="print")
    assert here.place.locator(".cell_output img").is_visible(), "paper shows the figure"
    assert not here.play.is_visible()
    here.page.emulate_media(media="screen")
    assert not here.tab.audit(".play")


@pytest.mark.parametrize(("page", "name"), ENGLISH[:1])
def test_explorer_in_a_folder(opened, page, name):
    here = opened(page, name, start=HTML.as_uri() + "/")
    assert here.play.locator("button").first.is_visible()


def test_explorer_without_scripts(browser, origin):
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    for page, name in ENGLISH:
        tab.goto(origin + page, wait_until="commit")
        place = tab.locator(f".tag_play-{name}")
        place.locator(".cell_output img").wait_for()
        assert "JavaScript" in place.inner_text()
    context.close()


@pytest.mark.parametrize(("page", "name"), CHINESE[:1])
def test_explorer_speaks_chinese(opened, page, name):
    here = opened(page, name)
    assert re.search("[\u4e00-\u9fff]", here.play.get_attribute("aria-label"))


@pytest.mark.parametrize(
    ("page", "name", "surface", "slider"),
    [
        ("compression", "jpeg", ".jpeg-photo canvas", "The block"),
        ("vae", "vae", ".vae-plane canvas", ""),
        ("training", "optimizers", ".optimizers-map svg", "Start"),
    ],
)
def test_a_finger_chooses_a_place(opened, page, name, surface, slider):
    here = opened(f"chapters/{page}.html", name, **TOUCH)
    handle = here.play.get_by_role("slider", name=slider).first
    before = handle.get_attribute("aria-valuetext")
    box = here.play.locator(surface).bounding_box()
    here.page.touchscreen.tap(box["x"] + box["width"] * 0.4, box["y"] + box["height"] * 0.3)
    assert handle.get_attribute("aria-valuetext") != before
    assert handle.evaluate("e => getComputedStyle(e).touchAction") == "none", "it does not scroll"


# What each does. The engines are held against Python in test_play_engines.py.


def test_bpe_cuts_what_is_typed_and_replays_the_merges(opened):
    here = opened("chapters/bpe.html", "bpe")

    def pieces() -> list[str]:
        return here.play.locator(".bpe-piece span").all_text_contents()

    here.play.locator(".bpe-piece").first.focus()
    here.press("ArrowRight")
    said = r"·is has the number \d+ and the bytes 32 105 115\. Merge \d+ makes it"
    assert re.search(said, here.text(".bpe-detail"))
    slider = here.play.locator("input[type=range]")
    slider.focus()
    here.press("Home")
    assert pieces() == list("What·is·the·city·but·the·people?")
    lengths = [len(pieces())]
    for _ in range(int(slider.get_attribute("max"))):
        here.press("ArrowRight")
        assert here.play.locator(".bpe-fresh").count(), "what the merge has made is framed"
        lengths.append(len(pieces()))
    assert sorted({*lengths}, reverse=True) == lengths
    assert pieces() == ["What", "·is", "·the", "·city", "·but", "·the", "·people", "?"]
    here.type("🙂")
    assert pieces() == ["‹240›", "‹159›", "‹153›", "‹130›"]


def shown(here: Opened) -> dict[str, list[str]]:
    """Return the numbers of model and truth beside each word."""
    return {
        row.get_attribute("data-word"): row.locator(".gpt-numbers span").all_text_contents()
        for row in here.play.locator("button.gpt-row").all()
    }


def test_gpt_shows_the_truth_beside_the_model(opened):
    here = opened("index.html", "gpt")
    assert here.play.locator("textarea").input_value().endswith(" near the")
    assert shown(here)["field"][1] == "1.00" and float(shown(here)["field"][0]) > 0.4
    assert "with the true probabilities, one of 1.0. In nats" in here.text(".gpt-cost")
    assert "floor 0.00" in here.text(".gpt-cost")
    here.type("Mary often")
    truth = toyworld.next_token_log_probs(["mary", "often"])
    for word, (_, true) in shown(here).items():
        wanted = 2.718281828 ** truth[word] if word in truth else 0
        assert float(true.lstrip("<")) == pytest.approx(wanted, abs=0.006)
    widths = here.play.locator(".play-bars span").evaluate_all("all => all.map(e => e.style.width)")
    assert "100%" in widths, "bars are relative to the longest"
    here.type("yesterday the farmex")
    assert "“farmex” is not among the 970 words" in here.text("[role=status]")
    here.type("yesterday the f")
    assert list(shown(here))[0] == "farmer" and all(word[0] == "f" for word in shown(here))
    here.type("paris is the capital of spain")
    assert "No sentence of ToyWorld goes on with “spain”" in here.text(".gpt-cost")
    assert {true for _, true in shown(here).values()} == {"–"}


def test_gpt_on_a_phone_shows_the_text_while_the_temperature_changes(opened):
    here = opened("index.html", "gpt", **(TOUCH | {"viewport": {"width": 360, "height": 640}}))
    slider, text = here.slider("Temperature"), here.play.locator("textarea")
    slider.evaluate("e => e.scrollIntoView({block: 'end'})")
    assert 0 <= text.bounding_box()["y"] < slider.bounding_box()["y"] < 640


def test_gpt_is_written_with_by_keyboard_and_by_its_rule(opened):
    here = opened("chapters/gpt.html", "gpt")
    written = here.play.locator("textarea").input_value
    here.play.locator("textarea").focus()
    here.press("Control+A")
    here.page.keyboard.type("the farmer")
    here.play.locator("button.gpt-row").first.focus()
    word = here.page.evaluate("document.activeElement.dataset.word")
    here.press("Enter")
    assert written() == f"the farmer {word}"
    assert here.page.evaluate("document.activeElement.matches('.gpt-row')"), "the focus stays"
    here.click("Undo")
    assert written() == "the farmer"
    here.slider("Temperature").press("Home")
    here.click("Start over")
    here.click("Write a sentence")
    assert toyworld.derivations(written())
    here.type("the farmer . " * 70)
    assert not here.play.get_by_role("button", name="Write a word").is_enabled()
    assert "as long as it can be" in here.text("[role=status]")


def test_jpeg_shows_what_a_block_costs(opened):
    here = opened("chapters/compression.html", "jpeg")

    def bits() -> int:
        """Return how many bits the block takes, which are those that are shown."""
        chips = "".join(here.play.locator(".jpeg-chip code").all_text_contents())
        assert len(chips) == int(re.search(r"(\d+) bits instead", here.text(".jpeg-about"))[1])
        return len(chips)

    handle = here.slider("The block")
    assert handle.get_attribute("aria-valuetext") == "row 6, column 10" and bits() == 89
    assert "0.99 bits a pixel, 29.0 dB" in here.play.inner_text()
    here.press("ArrowUp", "ArrowUp", "ArrowUp", "Shift+ArrowRight")
    assert handle.get_attribute("aria-valuetext") == "row 3, column 15"
    assert bits() < 30, "in the sky"
    here.drag(handle, (38.5 / 40, 16.5 / 26), on=here.play.locator(".jpeg-photo canvas"))
    assert handle.get_attribute("aria-valuetext") == "row 17, column 39"
    assert bits() > 90, "in the leaves"
    here.press("Home")
    here.slider("Waves added up").press("Home")
    for n in range(1, 16):
        here.click("One wave forth")
        assert f"Wave {n} of 15" in here.play.inner_text()
    assert "typical error 6.6" in here.text(".jpeg-about")
    here.play.get_by_label("Quality").fill("100")
    assert bits() > 200, "quality costs bits"


def test_vae_draws_from_codes_and_reads_what_is_drawn(opened):
    here = opened("chapters/vae.html", "vae")

    def code() -> list[float]:
        said = here.play.get_by_role("slider").get_attribute("aria-valuetext")
        return [float(number) for number in said.replace("−", "-").split(" and ")]

    def numbers() -> list[float]:
        return [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", here.text(".vae-about"))]

    def picture() -> list[int]:
        data = "e => [...e.getContext('2d').getImageData(0, 0, 28, 28).data]"
        return here.play.locator("canvas[role=img]").evaluate(data)

    at_code, *place, at_cloud = numbers()
    assert at_code == at_cloud and place == code()
    handle, first = here.slider(""), picture()
    here.press("Shift+ArrowRight", *["Shift+ArrowUp"] * 5)
    assert numbers()[0] > numbers()[-1] == at_cloud, "its cloud asks the least"
    here.drag(handle, (0.8, 0.5), on=here.play.locator(".vae-plane canvas"))
    assert code() == pytest.approx([4.2 * 0.6, 0], abs=0.05)
    assert numbers()[1:3] == code() and picture() != first
    here.click("A code from the prior")
    assert code() != pytest.approx([4.2 * 0.6, 0], abs=0.05)
    here.click("Draw one")
    here.play.get_by_role("application").focus()
    here.press("Space", *["ArrowDown"] * 16, "Space")
    assert code()[1] < -1.5, "a stroke, drawn by keyboard alone, lies where the ones are"


def test_attention_follows_keyboard_and_pointer(opened):
    here = opened("chapters/transformer.html", "attention")

    def row(word: str) -> tuple[list[float], float]:
        """Return the numbers of a word and its weight."""
        group = here.play.get_by_role("group", name=word, exact=True)
        sliders = group.get_by_role("slider").all()
        weight = group.locator(".attention-weight > span").last.inner_text()
        return [float(s.get_attribute("aria-valuenow")) for s in sliders], float(weight)

    assert row("steel") == ([0, 1.2, 0.1], 0.29)
    assert "After: (0.34, 0.77, 0.27)" in here.play.inner_text()
    number = here.slider("machine of steel")
    here.press(*["ArrowRight"] * 8)
    assert row("steel") == ([0, 2, 0.1], 0.44)
    here.drag(number, (0.1, 0.5))
    assert row("steel")[0][1] < 1
    here.click("the crane ate fish")
    assert row("fish") == ([1.2, 0, 0.1], 0.29)
    here.click("the attends")
    assert row("fish")[1] == 0.25, "zeros match everything alike"


def test_heads_says_who_attends_to_whom(opened):
    here = opened("chapters/transformer.html", "heads")
    letters = here.play.locator(".heads-letters > button")
    letters.first.focus()
    here.press("ArrowRight")
    assert here.text(".heads-says").startswith("To write a,")
    letters.nth(2).hover()
    assert here.text(".heads-says").startswith("To write d,")
    here.click("Encoder to the word")
    assert letters.all_text_contents() == [*"monday", ">"]
    letters.nth(5).click()
    said = "In the encoder, head 1 of y attends to the end mark 0."
    assert here.text(".heads-says").startswith(said)
    here.click("Decoder to itself")
    letters.first.click()
    assert "attends to the start mark 1.00" in here.text(".heads-says")
    here.type("River")
    assert here.text("[role=status]") == "The model writes revir, which is right."


def test_vectors_finds_neighbors_and_analogies(opened):
    here = opened("chapters/similarity_and_analogy.html", "vectors")

    def lists() -> dict[str, list[str]]:
        """Return the words in the list of each model."""
        return {
            part.get_attribute("aria-label"): [
                button.get_attribute("data-word") for button in part.get_by_role("button").all()
            ]
            for part in here.play.locator(".vectors-list").all()
        }

    word = here.play.locator("textarea:visible").first.input_value
    assert [words[0] for words in lists().values()].index("queen") == 3, "of man, woman, king"
    here.click("Neighbors of a word")
    assert [len(words) for words in lists().values()] == [5] * 4
    here.type("japan")
    assert all("japan" not in words for words in lists().values())
    first = lists()["GloVe's file"][0]
    here.play.locator(f".vectors-list [data-word={first}]").first.press("Enter")
    assert word() == first
    here.play.locator(".vectors-map svg").scroll_into_view_if_needed()
    dot = here.play.locator(".vectors-map svg > circle").nth(300).bounding_box()
    here.page.mouse.click(dot["x"] + dot["width"] / 2, dot["y"] + dot["height"] / 2)
    assert here.play.locator(".vectors-pointed").text_content() == word() != first
    here.click("Analogy")
    for i, given in enumerate(("japan", "japanese", "germany")):
        here.play.locator("textarea:visible").nth(i).fill(given)
    assert lists()["GloVe's file"][0] == "german"
    assert all("germany" not in words for words in lists().values())
    here.click("Leave a, b and c out")
    assert lists()["word2vec"][0] == "germany", "c wins"


def test_optimizers_walk_as_the_chapter_says(opened):
    here = opened("chapters/training.html", "optimizers")

    def loss(name: str) -> str:
        said = here.play.get_by_role("button", name=re.compile(f"^{name}")).inner_text()
        return said.split("loss ")[-1]

    losses = {"SGD": "0.098", "momentum": "2e−5", "RMSProp": "0.0051", "Adam": "0.03"}
    assert {name: loss(name) for name in losses} == losses
    assert "Lowest of all: momentum." in here.text(".optimizers-said")
    here.drag(here.slider("Start"), (0.6, 0.3), on=here.play.locator(".optimizers-map svg"))
    assert all(loss(name) != losses[name] for name in losses)
    here.click("As in the chapter")
    here.click("This rate for all")
    assert (loss("Adam"), loss("RMSProp")) == ("2.1", "0.1")
    here.slider("Steps").press("Home")
    assert "All four stand at the start, and the loss is 33." in here.text(".optimizers-said")


def test_bert_hides_words_and_guesses_them(opened):
    here = opened("chapters/bert.html", "bert")

    def sees() -> str:
        return " ".join(here.play.locator(".bert-word span").all_inner_texts())

    def guesses() -> dict[str, str]:
        """Return the best guess's chance of each word that it does not rule out."""
        rows = [row.inner_text().split() for row in here.play.locator(".bert-guess").all()]
        return {word: best for word, *_, best in rows if best != "0.00"}

    def losses() -> list[float]:
        """Return the expected loss and the lowest one of the word that is asked for."""
        said = r"BERT (\d+\.\d+) nats, best possible (\d+\.\d+)"
        return [float(x) for x in re.search(said, here.text(".bert-said")).groups()]

    assert sees() == "the [MASK] in italy is one of the highest on earth ."
    assert guesses() == {"crane": "0.55", "mountain": "0.27", "volcano": "0.18"}
    assert losses()[1] == 0.99 <= losses()[0] < 1.5
    here.play.locator(".bert-word").nth(8).click()
    assert losses()[1] == 2.27, "the other gap gives nothing away"
    here.press(*["ArrowLeft"] * 7, "Enter")
    assert losses() == [3.32, 2.94]
    here.type("Every crane likes [MASK] .")
    assert guesses() == {"fish": "0.67", "snails": "0.33"}
    here.type("paris is the capital of italy .")
    here.play.locator(".bert-word").nth(3).click()
    assert "ToyWorld has no sentence like this" in here.text(".bert-said")
    here.click("Another sentence")
    assert sees().count("[MASK]") == 1 and losses()[0] >= losses()[1] - 0.011
