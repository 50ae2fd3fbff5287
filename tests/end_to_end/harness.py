"""Runs femc and femrun on a small model and text, in a folder of their own, and reads what they leave."""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import numpy as np

BIN = Path(os.environ.get("FEM_BIN", "build/release/bin"))
SOURCE = Path(os.environ.get("FEM_SOURCE", "."))
HAVE_MPI = shutil.which("mpirun") is not None

CONFIG = """
model: {layers: 4, hidden: 32, intermediate: 64, heads: 4, kv_heads: 2, vocab: 257, init_std: 0.05}
parallel: {pp: 1, dp: 1}
schedule: {name: 1f1b}
batch: {global: 8, micro: 1, seq_len: 32}
optimizer: {lr: 5e-3, warmup_steps: 2}
data: {train: DATA/train, eval: DATA/heldout}
run: {steps: 4, eval_interval: 2, eval_steps: 2}
"""

# Kinds of memory that are there from beginning to end, in femc's figures and in femrun's.
# What a rank holds all the time of LibTorch's allocator, and in all.
TORCH_STATE = ("parameters", "masters", "gradients", "optimizer", "workspace")
STATE = (*TORCH_STATE, "communication")

# About 6000 tokens in 40 documents, of which make_data.py holds out every tenth.
SENTENCES = ["the plan says what every rank does before it runs. ", "a receive waits for its send. ",
             "gradients are summed in one order. ", "the norm counts each parameter once. "]


class Trained:
    """What a run left: metrics as lists over steps, and every tensor of the checkpoint as bytes by name."""

    def __init__(self, metrics, checkpoint):
        lines = [json.loads(line) for line in Path(metrics).read_text().splitlines()]
        steps = [line for line in lines if "loss" in line]
        self.steps = [line["step"] for line in steps]
        self.losses = [line["loss"] for line in steps]
        self.norms = [line["grad_norm"] for line in steps]
        self.rates = [line["lr"] for line in steps]
        self.evals = [(line["step"], line["eval_loss"]) for line in lines if "eval_loss" in line]
        self.tensors = {}
        for kind in ("model", "optimizer") if checkpoint else ():
            for file in sorted(newest(checkpoint).glob(f"{kind}*.safetensors")):
                self.tensors.update(tensor_bytes(file))


def tensor_bytes(file):
    """Bytes by name of a safetensors file, whatever their type: numpy knows no bf16."""
    content = Path(file).read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8:8 + length])
    data = content[8 + length:]
    return {name: data[slice(*entry["data_offsets"])] for name, entry in header.items() if name != "__metadata__"}


def newest(checkpoint):
    return Path(checkpoint) / (Path(checkpoint) / "latest").read_text().strip()


def children_of(parent):
    children = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            status = (entry / "status").read_text()
        except OSError:  # it has ended
            continue
        if f"PPid:\t{parent}\n" in status:
            children.append(int(entry.name))
    return children


def ranks_of(femrun):
    """The ranks of `femrun --backend mpi`, {rank: pid}: grandchildren, below mpirun. Empty for other runs."""
    ranks = {}
    for mpirun in children_of(femrun):
        for pid in children_of(mpirun):
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            values = dict(item.split(b"=", 1) for item in environment if b"=" in item)
            if b"OMPI_COMM_WORLD_RANK" in values:
                ranks[int(values[b"OMPI_COMM_WORLD_RANK"])] = pid
    return ranks


def end(process):
    """Ends femrun and what it started, whatever state they are in, and closes its pipes."""
    if process.poll() is None:
        for pid in [*ranks_of(process.pid).values(), *children_of(process.pid), process.pid]:
            os.kill(pid, signal.SIGKILL)
        process.wait(timeout=10)
    process.stdout.close()
    process.stderr.close()


class EndToEnd(unittest.TestCase):
    """A folder with token files and a configuration; plan(), femrun() and train() are the steps of a user."""

    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="femtotron-"))
        texts = []
        for i in range(40):
            text = cls.folder / f"text{i}.txt"
            text.write_text("".join(SENTENCES[(i * 7 + j * j) % len(SENTENCES)] for j in range(4)))
            texts.append(str(text))
        data = cls.folder / "data"
        subprocess.run([sys.executable, SOURCE / "examples/make_data.py", "--out", data, "--held-out", "10", *texts],
                       check=True, stdout=subprocess.DEVNULL)
        cls.config = cls.folder / "config.yaml"
        cls.config.write_text(CONFIG.replace("DATA", str(data)))
        cls.count = 0

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    @classmethod
    def fresh(cls, suffix):
        cls.count += 1
        return cls.folder / f"{cls.count}{suffix}"

    def plan(self, *settings, passes=None):
        """femc plan with overrides, "parallel.pp=2" and so on, and a pipeline other than the default one."""
        out = self.fresh(".plan")
        done = self.femc_plan(*settings, passes=passes, out=out)
        self.assertEqual(done.returncode, 0, done.stderr)
        return out

    def femc_plan(self, *settings, passes=None, out=None):
        words = [word for setting in settings for word in ("--set", setting)]
        words += ["--passes", passes] if passes else []
        return subprocess.run([BIN / "femc", "plan", self.config, "-o", out or self.fresh(".plan"), *words],
                              capture_output=True, text=True, timeout=60, check=False)

    def femrun(self, plan, *options, timeout=120):
        return subprocess.run([BIN / "femrun", plan, *options], capture_output=True, text=True, timeout=timeout,
                              check=False)

    def mpirun(self, ranks, plan, *options, timeout=120):
        """femrun below an mpirun that the user started."""
        command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", str(ranks)]
        return subprocess.run([*command, BIN / "femrun", plan, *options], capture_output=True, text=True,
                              timeout=timeout, check=False)

    def train(self, plan, *options, save=None, metrics=None):
        """A run that must succeed."""
        save = save or self.fresh(".save")
        metrics = metrics or self.fresh(".jsonl")
        done = self.femrun(plan, "--save", save, "--metrics", metrics, *options)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return Trained(metrics, save)

    def forecast(self, plan, program="train"):
        """What femc memory says of a program: one entry for each pipeline rank."""
        done = subprocess.run([BIN / "femc", "memory", plan, "--program", program, "--json"], capture_output=True,
                              text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["ranks"]

    def measurement(self, plan, *options):
        """What femrun's ranks held: one entry for each rank."""
        file = self.fresh(".json")
        done = self.femrun(plan, "--memory", file, *options)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return json.loads(file.read_text())["ranks"]

    def assert_state(self, measured, said):
        for kind in STATE:
            self.assertEqual(measured[f"{kind}_bytes"], said["kinds"][f"{kind}_bytes"], kind)

    def start(self, plan, *options):
        """femrun in the background; the caller waits for it."""
        return subprocess.Popen([BIN / "femrun", plan, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True)

    def wait_for_steps(self, process, metrics, steps, timeout=60):
        """Returns once the metrics file has so many lines of steps."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            if Path(metrics).exists() and Path(metrics).read_text().count('"loss"') >= steps:
                return
            self.assertIsNone(process.poll(), "femrun ended before its time")
            time.sleep(0.02)
        self.fail("femrun did not get that far")

    def assert_same(self, a, b):
        self.assertEqual(a.losses, b.losses)
        self.assertEqual(a.norms, b.norms)
        self.assertEqual(a.evals, b.evals)
        self.assertEqual(a.tensors.keys(), b.tensors.keys())
        self.assertEqual([name for name in a.tensors if a.tensors[name] != b.tensors[name]], [])

    def assert_close(self, a, b, tolerance):
        np.testing.assert_allclose(a.losses, b.losses, rtol=tolerance)
