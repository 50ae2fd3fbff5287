"""femrun against torch.distributed.pipelining: tokens a second and peak memory of one model, in turn on the same cores.

    python tests/bench/compare_torch.py PEER --size tiny --pp 2 --rounds 7

PEER is a program with the options --schedule, --pp, --size, --dtype, --steps, --warmup, --threads, --data-dir and
--mem-profile that prints one JSON line with tok_s_median and, with --mem-profile, tensor_peak_mib of each rank. Each
round runs it and femrun one after the other, both with one thread a rank and as many cores as ranks; the ratio of a
round compares the medians of their steps. Memory is the highest peak of live tensors of a rank: LibTorch's allocator
counted by femrun --memory, the profiler's account by the peer. Run it alone on the machine.
"""
import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy

SIZES = {
    "tiny": dict(vocab=256, hidden=64, layers=8, heads=4, kv_heads=2, intermediate=192, seq_len=64, micro=1, count=16),
    "small": dict(vocab=512, hidden=512, layers=8, heads=8, kv_heads=4, intermediate=1536, seq_len=256, micro=2,
                  count=8),
}
MODEL = ("vocab", "hidden", "layers", "heads", "kv_heads", "intermediate")
SCHEDULES = {"1f1b": "1F1B", "gpipe": "GPipe", "interleaved_1f1b": "Interleaved1F1B"}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", type=Path)
    parser.add_argument("--bin", type=Path, default=Path("build/release/bin"))
    parser.add_argument("--size", choices=SIZES, default="tiny")
    parser.add_argument("--schedule", choices=SCHEDULES, default="1f1b")
    parser.add_argument("--pp", type=int, default=2)
    parser.add_argument("--dtype", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--backend", choices=("local", "mpi"), default="local")
    parser.add_argument("--rounds", type=int, default=7, help="0: memory alone")
    parser.add_argument("--steps", type=int, default=25, help="of each run, warm-up included")
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--no-memory", action="store_true")
    return parser.parse_args()


def write_tokens(prefix, tokens):
    """One document as PREFIX.bin and PREFIX.idx."""
    tokens.astype("<i4").tofile(f"{prefix}.bin")
    with open(f"{prefix}.idx", "wb") as index:
        index.write(b"MMIDIDX\x00\x00" + (1).to_bytes(8, "little") + bytes([4]) + (1).to_bytes(8, "little")
                    + (2).to_bytes(8, "little") + len(tokens).to_bytes(4, "little") + (0).to_bytes(8, "little")
                    + (0).to_bytes(8, "little") + (1).to_bytes(8, "little"))


class Ours:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        size = SIZES[args.size]
        self.tokens = size["count"] * size["micro"] * size["seq_len"]
        generator = numpy.random.default_rng(0)
        write_tokens(folder / "tokens", generator.integers(0, size["vocab"], 4 * self.tokens + 1))
        config = folder / "config.yaml"
        config.write_text(
            f"model: {{{', '.join(f'{name}: {size[name]}' for name in MODEL)}}}\n"
            f"parallel: {{pp: {args.pp}}}\nschedule: {{name: {args.schedule}}}\n"
            f"batch: {{global: {size['count'] * size['micro']}, micro: {size['micro']}, seq_len: {size['seq_len']}}}\n"
            f"precision: {{compute: {args.dtype}}}\noptimizer: {{decay: constant, clip_norm: 0}}\n"
            f"data: {{train: {folder / 'tokens'}}}\nrun: {{steps: {args.steps}, log_interval: 100000}}\n")
        subprocess.run([args.bin / "femc", "plan", config, "-o", folder / "plan.txt"], check=True,
                       stdout=subprocess.DEVNULL)

    def rate(self):
        metrics = self.folder / "metrics.jsonl"
        metrics.unlink(missing_ok=True)
        run(self.args, [self.args.bin / "femrun", self.folder / "plan.txt", "--backend", self.args.backend, "--metrics",
                        metrics, "--memory", self.folder / "memory.json"])
        ends = [json.loads(line)["elapsed_s"] for line in metrics.read_text().splitlines() if "elapsed_s" in line]
        steps = [after - before for before, after in zip(ends, ends[1:])][self.args.warmup - 1:]
        return self.tokens / statistics.median(steps)

    def peak(self):
        if not (self.folder / "memory.json").exists():
            self.rate()
        ranks = json.loads((self.folder / "memory.json").read_text())["ranks"]
        return max(rank["allocator_peak_bytes"] for rank in ranks) / 2**20


class Theirs:
    def __init__(self, args, folder):
        self.args = args
        self.command = [sys.executable, args.peer, "--schedule", SCHEDULES[args.schedule], "--pp", args.pp, "--size",
                        args.size, "--dtype", args.dtype, "--threads", 1, "--warmup", args.warmup, "--steps",
                        args.steps, "--data-dir", folder, "--no-losses"]
        # A first run makes the peer's data: its ranks all try to, and one of them may fail.
        subprocess.run([str(word) for word in self.command], check=False, capture_output=True)

    def rate(self):
        return json.loads(run(self.args, self.command))["tok_s_median"]

    def peak(self):
        return max(json.loads(run(self.args, [*self.command, "--mem-profile"]))["tensor_peak_mib"])


def run(args, command):
    cores = ",".join(str(core) for core in range(args.pp))
    words = ["taskset", "-c", cores, *map(str, command)]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip().splitlines()[-1]


def spread(values, digits):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def main():
    args = arguments()
    with tempfile.TemporaryDirectory() as name:
        ours, theirs = Ours(args, Path(name)), Theirs(args, Path(name))
        print(f"{args.size} {args.dtype} {args.schedule} pp={args.pp} {args.backend}, median (least to most)")
        pairs = []
        for number in range(args.rounds):
            pairs.append((ours.rate(), theirs.rate()))
            own, peer = pairs[-1]
            print(f"  round {number + 1}: {own:.0f} and {peer:.0f} tokens/s, ratio {own / peer:.3f}", flush=True)
        if pairs:
            own, peer = zip(*pairs)
            print(f"  tokens/s  ours {spread(own, 0)}, theirs {spread(peer, 0)}")
            print(f"  ratio     {spread([a / b for a, b in pairs], 3)}")
        if not args.no_memory:
            own, peer = ours.peak(), theirs.peak()
            print(f"  peak MiB  ours {own:.1f}, theirs {peer:.1f}, ratio {own / peer:.3f}")


if __name__ == "__main__":
    main()
