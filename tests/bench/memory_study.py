"""The tables of docs/memory.md: peaks of two models under ZeRO 0 to 3, from dry runs.

    python3 tests/bench/memory_study.py build/release/bin

Figures are MiB of the rank that holds most: the peak of LibTorch's allocator on the Meta device, and the scratch of
sums. "At 24 bytes" puts the state of each parameter at what the Python system holds that docs/memory.md compares with,
in place of ours, and leaves out the scratch, which that system's allocator does not see: the difference between the two
is accounting, not a saving.
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

MIB = 2**20
MODELS = {
    "A": "model: {layers: 8, hidden: 1024, intermediate: 2048, heads: 16, kv_heads: 4, vocab: 1024}",
    "B": "model: {layers: 8, hidden: 2048, intermediate: 8192, heads: 32, kv_heads: 8, vocab: 40960}",
}
# What the Python system's allocator held, by ZeRO stage and recompute; MiB. Of model A at the same layout.
MEASURED = {"A": {(0, "none"): (1653, 1653, 3631), (0, "full"): (1653, 1653, 1669),
                  (1, "none"): (460, 471, 2913), (1, "full"): (460, 460, 901),
                  (2, "none"): (443, 444, 2776), (2, "full"): (443, 444, 765),
                  (3, "none"): (384, 419, 2840), (3, "full"): (261, 261, 711)}}
STATE = ("parameters", "masters", "gradients", "optimizer")


def heaviest(binaries, model, pp, dp, micro_count, *settings):
    """What a dry run says of the rank with the highest peak."""
    with tempfile.TemporaryDirectory() as folder:
        config, plan, report = Path(folder) / "config.yaml", Path(folder) / "plan.txt", Path(folder) / "memory.json"
        config.write_text(f"{MODELS[model]}\n"
                          f"parallel: {{pp: {pp}, dp: {dp}}}\n"
                          "schedule: {name: 1f1b}\n"
                          f"batch: {{global: {dp * micro_count}, micro: 1, seq_len: 32}}\n"
                          "precision: {compute: bf16}\n")
        words = [word for setting in settings for word in ("--set", setting)]
        for command in ([binaries / "femc", "plan", config, "-o", plan, *words],
                        [binaries / "femrun", plan, "--device", "meta", "--memory", report]):
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        ranks = json.loads(report.read_text())["ranks"]
        return max(ranks, key=lambda rank: rank["allocator_peak_bytes"] + rank["communication_bytes"])


def parameters(*layout):
    """That the heaviest rank works with: its bf16 working copy under ZeRO-0, padding included."""
    return heaviest(*layout)["parameters_bytes"] / 2


def state_at_24(count, zero, dp):
    """Bytes of the Python system's state: 24N, 4N+20N/d, 2N+22N/d, 24N/d."""
    return count * (24, 4 + 20 / dp, 2 + 22 / dp, 24 / dp)[zero]


def row(layout, zero, recompute, columns, counts):
    model, dp = layout[1], layout[3]
    cells = []
    for i, (column, count) in enumerate(zip(columns, counts)):
        reduce = "microbatch" if zero >= 2 else "step"
        rank = heaviest(*layout, column, f"memory.recompute={recompute}", f"parallel.zero={zero}",
                        f"parallel.reduce={reduce}")
        ours = rank["allocator_peak_bytes"]
        theirs = ours - sum(rank[f"{kind}_bytes"] for kind in STATE) + state_at_24(count, zero, dp)
        measured = f"; {MEASURED[model][zero, recompute][i]}" if model in MEASURED else ""
        cells.append(f"{(ours + rank['communication_bytes']) / MIB:.0f} ({theirs / MIB:.0f}{measured})")
    name = f"ZeRO-{zero}" + (" + recompute" if recompute == "full" else "")
    return f"| {name} | " + " | ".join(cells) + " |"


def table(layout, columns):
    _, model, pp, dp, micro_count = layout
    print(f"\nModel {model}, pp={pp}, dp={dp}, microbatches of 1 sequence: {micro_count}. Ours (at 24 bytes a parameter"
          + ("; measured there" if model in MEASURED else "") + ")\n")
    print("| | " + " | ".join(column.split(".")[1] for column in columns) + " |")
    print("|---" * (len(columns) + 1) + "|")
    counts = [parameters(*layout, column) for column in columns]
    for zero in range(4):
        for recompute in ("none", "full"):
            print(row(layout, zero, recompute, columns, counts))


def main():
    binaries = Path(sys.argv[1] if len(sys.argv) > 1 else "build/release/bin")
    table((binaries, "A", 1, 8, 1), [f"batch.seq_len={n}" for n in (16, 32, 1024)])
    for pp, dp in ((2, 4), (4, 2)):
        table((binaries, "B", pp, dp, 8), [f"model.layers={n}" for n in (8, 32, 64)])


if __name__ == "__main__":
    main()
