"""examples/show_metrics.py on the JSON lines that `femrun --metrics` writes."""
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(os.environ["FEM_SOURCE"]) / "examples" / "show_metrics.py"


def run(*arguments):
    return subprocess.run([sys.executable, "-B", str(SCRIPT), *arguments], capture_output=True, text=True, check=False)


def show(text):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "metrics.jsonl"
        path.write_text(text, encoding="utf-8")
        return run(str(path))


class ShowMetrics(unittest.TestCase):
    def test_first_and_last_losses(self):
        result = show('{"step":1,"loss":5.5,"tokens_per_s":100.0,"elapsed_s":1.0}\n{"step":1,"eval_loss":5.4}\n'
                      '{"step":2,"loss":3.25,"tokens_per_s":110.0,"elapsed_s":2.0}\n{"step":2,"eval_loss":3.5}\n')
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(result.stdout, "training   loss 5.5000 at step 1 -> 3.2500 at step 2\n"
                                        "held out   loss 5.4000 at step 1 -> 3.5000 at step 2\n"
                                        "time       2 s, 110 tokens/s\n")

    def test_without_evaluation(self):
        self.assertIn("held out   none\n", show('{"step":1,"loss":5.5}\n').stdout + "\n")

    def test_errors_name_the_line(self):
        for text, words in (('{"step":1,"loss":1}\nnan\n', "metrics.jsonl:2: not a line of JSON"),
                            ('{"loss":1}\n', "metrics.jsonl:1: no step"), ("[]\n", "metrics.jsonl:1: no step")):
            result = show(text)
            self.assertEqual((result.returncode, result.stdout), (1, ""))
            self.assertIn(words, result.stderr)

    def test_usage(self):
        self.assertEqual(run().returncode, 2)


if __name__ == "__main__":
    unittest.main()
