"""The HTML timeline in headless Chromium: it draws without an error, and hovering and zooming answer."""
import html
import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

BIN = Path(os.environ["FEM_BIN"])
CHROMIUM = os.environ["FEM_CHROMIUM"]

CONFIG = """
model: {{layers: {layers}, hidden: 64, intermediate: 128, heads: 4, vocab: 256}}
parallel: {{pp: {pp}}}
schedule: {{name: {schedule}}}
batch: {{global: {microbatches}, seq_len: 16}}
"""

# What a user does with the mouse, after the page's own script; then the view is drawn and the page says how it is.
ACT = """<script>
const spot = (type, x, y, more) => {
  const box = view.getBoundingClientRect();
  view.dispatchEvent(new (type === "wheel" ? WheelEvent : MouseEvent)(type,
    {clientX: box.left + x, clientY: box.top + y, bubbles: true, cancelable: true, ...more}));
};
const first = data.ranks[0].rows[0].items.find((i) => data.patterns[i[2]].startsWith("Forward"));
spot("mousemove", x_of((first[0] + first[1]) / 2), AXIS + data.ranks[0].y + 5);
document.body.dataset.hover = tip.textContent;
const before = span;
spot("wheel", GUTTER + 100, 60, {deltaY: -500});
document.body.dataset.zoomed = span < before;
draw();
const at = left;
spot("mousedown", 400, 100);
spot("mousemove", 300, 100);
document.body.dataset.panned = left > at;
draw();
const pixels = ink.getImageData(0, 0, canvas.width, canvas.height).data;
let inked = 0;
for (let i = 3; i < pixels.length; i += 4) inked += pixels[i] > 0;
document.body.dataset.inked = inked;
</script>
</body>"""


def chromium(*arguments):
    with tempfile.TemporaryDirectory() as profile:
        return subprocess.run(
            [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-extensions", "--window-size=1400,900", "--virtual-time-budget=20000",
             f"--user-data-dir={profile}", *arguments],
            capture_output=True, text=True, timeout=120, check=True).stdout


class Html(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = Path(self.folder.name)

    def timeline(self, pp, microbatches, schedule="1f1b"):
        config, plan, page = self.path / "run.yaml", self.path / "run.fem", self.path / "page.html"
        config.write_text(CONFIG.format(layers=2 * pp, pp=pp, microbatches=microbatches, schedule=schedule))
        subprocess.run([BIN / "femc", "plan", config, "-o", plan], check=True, capture_output=True)
        subprocess.run([BIN / "femc", "timeline", plan, "--profile", "laptop_cpu", "--rendezvous", "--html", page],
                       check=True, capture_output=True)
        return page

    def body(self, page, act=ACT):
        """The body's data attributes and the rows' labels after the script has run."""
        text = page.read_text()
        self.assertEqual(text.count("</body>"), 1)
        page.write_text(text.replace("</body>", act))
        dom = chromium("--dump-dom", page.as_uri())
        body = re.search(r"<body([^>]*)>", dom)[1]
        labels = re.findall(r'<div class="(?:rank|row)" data-rank="(\d+)" data-lane="(\w+)"', dom)
        return {key: html.unescape(value) for key, value in re.findall(r'data-(\w+)="([^"]*)"', body)}, labels

    def test_small(self):
        data, labels = self.body(self.timeline(4, 8))
        self.assertNotIn("error", data)
        self.assertEqual(data["ranks"], "4")
        # 22 actions on each rank and 60 sends and receives of the published order, fused ones counting once.
        self.assertGreaterEqual(int(data["done"]), 4 * 22 + 30)
        for rank in range(4):
            for lane in ("compute", "p2p", "collective", "memory"):
                self.assertIn((str(rank), lane), labels)
        self.assertEqual(len(labels), 16)
        self.assertRegex(data["hover"], r"^Forward s0 m0\n.* to .* long\nrank 0, compute lane\nmemory .*iB, peak .*iB$")
        self.assertEqual(data["zoomed"], "true")
        self.assertEqual(data["panned"], "true")
        self.assertGreater(int(data["inked"]), 10000)

    def test_large(self):
        """64 ranks with some thousand actions each."""
        page = self.timeline(64, 1024)
        data, labels = self.body(page)
        self.assertNotIn("error", data)
        self.assertEqual(data["ranks"], "64")
        self.assertGreater(int(data["done"]), 64 * 2 * 1024)
        self.assertEqual(len(labels), 64 * 4)
        self.assertLess(page.stat().st_size, 40e6)

    def test_an_error_is_marked(self):
        page = self.timeline(2, 2)
        page.write_text(page.read_text().replace('"ranks":[', '"runks":[', 1))
        data, _ = self.body(page, "</body>")
        self.assertIn("error", data)
        self.assertNotIn("done", data)


if __name__ == "__main__":
    unittest.main()
