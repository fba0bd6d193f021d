"""What a browser makes of the page: no errors, every figure visible, nothing wider than the window."""

import json
import re
import subprocess
from collections.abc import Sequence
from html import unescape
from pathlib import Path

import pytest

from tools.system_programs import require

FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--enable-logging=stderr"),
    "--virtual-time-budget=3000",
]
POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
PROBE = """<script>
const box = one => { const { width, height } = one.getBoundingClientRect(); return [width, height]; };
const figures = [...document.querySelectorAll("figure")].map(one => [one.id, ...box(one.querySelector("svg"))]);
const ground = getComputedStyle(document.querySelector(".report")).backgroundColor;
const text = getComputedStyle(document.querySelector("svg text")).fill;
console.log("probe ran");
const wide = document.documentElement.scrollWidth;
const tables = [...document.querySelectorAll(".scroll")].filter(one => one.scrollWidth > one.clientWidth);
const cut = tables.map(one => one.textContent.trim().slice(0, 80));
parent.postMessage([innerWidth, { figures, ground, text, wide, cut }], "*");
</script></body>"""
# A window cannot be as narrow as a phone, but a frame can.
FRAME = '<iframe src="probe.html" style="width: {width}px; height: 900px; border: 0"></iframe>'
LISTENER = """<pre></pre><script>const seen = [];
onmessage = event => { seen.push(event.data); document.querySelector("pre").textContent = JSON.stringify(seen); };
</script>"""


def browse(path: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    profile = f"--user-data-dir={path.parent / 'profile'}"
    command = [require("chromium"), *FLAGS, profile, *flags, path.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)


def assert_fits(
    page: str,
    folder: Path,
    figures: int,
    *flags: str,
    widths: Sequence[int] = (1280, 390),
    least: tuple[int, int] = (280, 80),
) -> tuple[str, str]:
    """In a frame of each width, every figure exceeds the least width and height, and nothing is wider than the frame.

    In a frame of 1280, every table shows all of its columns without scrolling. Sizes are in pixels. Returns the colors
    of the ground and of texts in figures.
    """
    (folder / "probe.html").write_text(POLICY.sub("", page).replace("</body>", PROBE), encoding="utf-8")
    frames = "".join(FRAME.format(width=width) for width in widths)
    (folder / "frames.html").write_text(f'<body style="margin: 0">{frames}{LISTENER}', encoding="utf-8")
    shown = browse(folder / "frames.html", "--window-size=1400,900", "--dump-dom", *flags)
    messages = [line for line in shown.stderr.splitlines() if "CONSOLE" in line]
    assert ["probe ran" in message for message in messages] == [True] * len(widths)
    seen = dict(json.loads(unescape(re.search("<pre>(.*?)</pre>", shown.stdout)[1])))
    assert seen.keys() == set(widths)
    for width, one in seen.items():
        assert len(one["figures"]) == figures
        for name, wide, high in one["figures"]:
            assert wide > least[0], name
            assert high > least[1], name
        assert one["wide"] <= width
        assert width < 1280 or not one["cut"]
    (colors,) = {(one["ground"], one["text"]) for one in seen.values()}
    return colors


def assert_allowed(page: str, folder: Path) -> None:
    """The page's own security policy blocks nothing of it."""
    (folder / "page.html").write_text(page, encoding="utf-8")
    assert "CONSOLE" not in browse(folder / "page.html", "--dump-dom").stderr


@pytest.mark.parametrize(
    ("flags", "colors"),
    [
        ([], ("rgb(245, 246, 248)", "rgb(91, 100, 114)")),
        (["--blink-settings=preferredColorScheme=0"], ("rgb(18, 22, 28)", "rgb(163, 173, 187)")),
    ],
    ids=["light", "dark"],
)
def test_every_figure_is_visible_in_its_colors_and_nothing_is_too_wide(page, tmp_path, flags, colors):
    assert assert_fits(page, tmp_path, 15, *flags, least=(280, 100)) == colors


def test_the_security_policy_of_the_page_blocks_nothing_of_it(page, tmp_path):
    assert_allowed(page, tmp_path)
