"""Twenty AdamW steps of femc and femrun against the plain PyTorch reference: same initial weights, same tokens.

Limits: losses 1e-5 relative, gradient norms 5e-5, weights 1e-3 of the way that a tensor moved; fp32 throughout. Every
layout starts from the same weights, those that the reference reads: initial values do not depend on the layout.
"""
import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
import reference_llama  # noqa: E402  (beside this file)

BIN = Path(os.environ["FEM_BIN"])
STEPS = 20
SEQ_LEN = 16
GLOBAL_BATCH = 8
VOCAB = 61
OPTIMIZER = {"lr": 4e-3, "min_lr": 5e-4, "warmup_steps": 4, "decay": "cosine", "weight_decay": 0.1, "clip_norm": 1.0}
MODELS = {
    "untied": {"tied": False, "kv_heads": 4},
    "tied": {"tied": True, "kv_heads": 4},
    "grouped": {"tied": False, "kv_heads": 2, "head_dim": 12},
    "tied_one_kv_head": {"tied": True, "kv_heads": 1},
}
LAYOUTS = [  # pp, dp, micro, schedule
    (1, 1, 2, "1f1b"),
    (2, 1, 1, "1f1b"),
    (4, 1, 2, "1f1b"),
    (2, 2, 1, "1f1b"),
    (1, 2, 4, "gpipe"),
    (2, 2, 2, "gpipe"),
]


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{command}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")


def write_corpus(prefix):
    """A learnable stream: the next token is a fixed function of the last two, four times out of five."""
    random = np.random.default_rng(7)
    successor = random.integers(0, VOCAB, (VOCAB, VOCAB))
    tokens = [0, 1]
    while len(tokens) < SEQ_LEN * GLOBAL_BATCH * 6 + 1:  # the twenty steps go through three epochs and more
        tokens.append(int(successor[tokens[-2], tokens[-1]]) if random.random() < 0.8 else int(random.integers(VOCAB)))
    tokens = np.array(tokens, dtype="<u2")
    tokens.tofile(f"{prefix}.bin")
    with open(f"{prefix}.idx", "wb") as index:
        index.write(b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, 1, 2))  # version, u16, one sequence, two boundaries
        index.write(struct.pack("<iqqq", tokens.size, 0, 0, 1))  # length, offset, boundaries
    return tokens.astype(np.int64)


def write_config(path, model, layout, data):
    pp, dp, micro, schedule = layout
    sections = {
        "model": {"layers": 4, "hidden": 32, "intermediate": 56, "heads": 4, "vocab": VOCAB, "init_std": 0.1, **model},
        "parallel": {"pp": pp, "dp": dp},
        "schedule": {"name": schedule},
        "batch": {"global": GLOBAL_BATCH, "micro": micro, "seq_len": SEQ_LEN},
        "precision": {"compute": "fp32"},
        "optimizer": OPTIMIZER,
        "data": {"train": str(data), "seed": 3},
        "run": {"steps": STEPS, "seed": 5},
    }
    path.write_text(json.dumps(sections), encoding="utf-8")  # JSON is YAML


def newest(folder):
    return folder / (folder / "latest").read_text(encoding="utf-8").strip()


def read_batches(folder):
    return reference_llama.read_batches(folder / "batches", STEPS, GLOBAL_BATCH, SEQ_LEN)


class Parity(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.set_num_threads(1)
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = Path(cls.temporary.name)
        cls.data = cls.folder / "train"
        cls.corpus = write_corpus(cls.data)

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def femtotron(self, name, layout):
        """The folder of one run: plan, metrics, batches, and weights under last."""
        folder = self.folder / "_".join([name, *map(str, layout)])
        folder.mkdir()
        write_config(folder / "config.yaml", MODELS[name], layout, self.data)
        run(BIN / "femc", "plan", folder / "config.yaml", "-o", folder / "plan")
        run(BIN / "femrun", folder / "plan", "--save", folder / "last", "--metrics", folder / "metrics",
            "--dump-batches", folder / "batches")
        return folder

    def check_batches(self, batches):
        """Every sample is a slice of the corpus at a multiple of seq_len, and an epoch repeats none."""
        starts = range(0, len(self.corpus) - SEQ_LEN, SEQ_LEN)
        samples = {tuple(self.corpus[start : start + SEQ_LEN + 1].tolist()): start for start in starts}
        drawn = [samples[tuple(row)] for row in batches.flatten(0, 1).tolist()]
        epoch = len(samples) // GLOBAL_BATCH * GLOBAL_BATCH
        for start in range(0, len(drawn), epoch):
            part = drawn[start : start + epoch]
            self.assertEqual(len(part), len(set(part)))

    def check_steps(self, path, wanted):
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        steps = [line for line in lines if "loss" in line]
        self.assertEqual([line["step"] for line in steps], list(range(1, STEPS + 1)))
        for got, want in zip(steps, wanted):
            at = f"step {want['step']}"
            self.assertAlmostEqual(got["loss"] / want["loss"], 1, delta=1e-5, msg=at)
            self.assertAlmostEqual(got["grad_norm"] / want["grad_norm"], 1, delta=5e-5, msg=at)
            self.assertAlmostEqual(got["lr"] / want["lr"], 1, delta=1e-12, msg=at)

    def check_weights(self, before, after, wanted):
        self.assertEqual(set(before), set(after))
        for name, start in before.items():
            moved = (wanted[name] - start).norm().item()
            self.assertGreater(moved, 0, name)
            self.assertLessEqual((after[name] - wanted[name]).norm().item(), 1e-3 * moved, name)

    def reference(self, folder):
        """Losses, initial and final weights of the reference, from the initial weights and the tokens of this run."""
        run(BIN / "femrun", folder / "plan", "--steps", 0, "--save", folder / "first")
        batches = read_batches(folder)
        self.check_batches(batches)
        model = reference_llama.load_model(newest(folder / "first"))
        wanted = list(reference_llama.train(model, batches, reference_llama.Optimization(STEPS, **OPTIMIZER)))
        self.assertLess(wanted[-1]["loss"], 0.9 * wanted[0]["loss"])  # it learns: the steps matter
        return wanted, reference_llama.load_weights(newest(folder / "first")), model.state_dict()

    def compare(self, name, layouts):
        reference = None
        for layout in layouts:
            with self.subTest(model=name, pp=layout[0], dp=layout[1], micro=layout[2], schedule=layout[3]):
                folder = self.femtotron(name, layout)
                if reference is None:
                    reference, batches = self.reference(folder), read_batches(folder)
                losses, initial, final = reference
                self.assertTrue(torch.equal(read_batches(folder), batches))
                self.check_steps(folder / "metrics", losses)
                self.check_weights(initial, reference_llama.load_weights(newest(folder / "last")), final)

    def test_untied(self):
        self.compare("untied", LAYOUTS)

    def test_tied(self):
        self.compare("tied", LAYOUTS)

    def test_grouped_heads(self):
        self.compare("grouped", LAYOUTS[1::2])

    def test_tied_with_one_key_head(self):
        self.compare("tied_one_kv_head", LAYOUTS[2::3])


if __name__ == "__main__":
    unittest.main()
