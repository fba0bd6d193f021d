"""What a browser makes of the page: no errors, every figure visible, nothing wider than the window."""

import json
import re
import subprocess
from html import unescape
from pathlib import Path

import pytest

from tools.system_programs import require

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
    "--virtual-time-budget=3000",
]
POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
PROBE = """<script>
const box = one => { const { width, height } = one.getBoundingClientRect(); return [width, height]; };
const figures = [...document.querySelectorAll("figure")].map(one => [one.id, ...box(one.querySelector("svg"))]);
const ground = getComputedStyle(document.querySelector(".report")).backgroundColor;
const text = getComputedStyle(document.querySelector("svg text")).fill;
console.log("probe ran");
parent.postMessage({ figures, ground, text, wide: document.documentElement.scrollWidth }, "*");
</script></body>"""
# A window cannot be as narrow as a phone, but a frame can.
FRAME = """<body style="margin: 0"><iframe src="probe.html" style="width: {width}px; height: 900px; border: 0"></iframe>
<pre></pre>
<script>onmessage = event => document.querySelector("pre").textContent = JSON.stringify(event.data);</script>"""


def test_a_missing_program_fails_in_continuous_integration(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda _, path=None: None)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="chromium is not installed"):
        require("chromium")
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception, match="chromium is not installed"):
        require("chromium")


def browse(path: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    profile = f"--user-data-dir={path.parent / 'profile'}"
    command = [require("chromium"), *FLAGS, profile, *flags, path.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)


def probe(page: str, folder: Path, width: int, *flags: str) -> dict:
    """What the page's own script sees in a frame of ``width`` pixels."""
    (folder / "probe.html").write_text(POLICY.sub("", page).replace("</body>", PROBE), encoding="utf-8")
    (folder / "frame.html").write_text(FRAME.replace("{width}", str(width)), encoding="utf-8")
    seen = browse(folder / "frame.html", "--window-size=1400,900", "--dump-dom", *flags)
    (message,) = [line for line in seen.stderr.splitlines() if "CONSOLE" in line]
    assert "probe ran" in message
    return json.loads(unescape(re.search("<pre>(.*?)</pre>", seen.stdout)[1]))


def assert_allowed(page: str, folder: Path) -> None:
    """The page's own security policy blocks nothing of it."""
    (folder / "page.html").write_text(page, encoding="utf-8")
    assert "CONSOLE" not in browse(folder / "page.html", "--dump-dom").stderr


@pytest.mark.parametrize(
    ("width", "dark", "colors"),
    [
        (1280, False, ("rgb(245, 246, 248)", "rgb(91, 100, 114)")),
        (390, False, ("rgb(245, 246, 248)", "rgb(91, 100, 114)")),
        (1280, True, ("rgb(18, 22, 28)", "rgb(163, 173, 187)")),
    ],
)
def test_every_figure_is_visible_in_its_colors_and_nothing_is_too_wide(page, tmp_path, width, dark, colors):
    seen = probe(page, tmp_path, width, *(["--blink-settings=preferredColorScheme=0"] if dark else []))
    assert len(seen["figures"]) == 15
    for name, wide, high in seen["figures"]:
        assert wide > 280, name
        assert high > 100, name
    assert seen["wide"] <= width
    assert (seen["ground"], seen["text"]) == colors
    assert_allowed(page, tmp_path)
