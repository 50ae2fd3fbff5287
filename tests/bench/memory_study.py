"""The tables of docs/memory.md: peaks of two models under ZeRO 0 to 3, from femc's forecast.

    python3 tests/bench/memory_study.py build/release/bin/femc

Figures are MiB of the rank that holds most. "24 bytes" puts the state of each parameter at what the Python system holds
that docs/memory.md compares with, in place of ours: the difference between the two is accounting, not a saving.
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
STATE = ("parameters", "masters", "gradients", "optimizer")


def heaviest(femc, model, pp, dp, micro_count, *settings):
    """What femc memory says of the rank with the highest peak."""
    with tempfile.TemporaryDirectory() as folder:
        config, plan = Path(folder) / "config.yaml", Path(folder) / "plan.txt"
        config.write_text(f"{MODELS[model]}\n"
                          f"parallel: {{pp: {pp}, dp: {dp}}}\n"
                          "schedule: {name: 1f1b}\n"
                          f"batch: {{global: {dp * micro_count}, micro: 1, seq_len: 32}}\n"
                          "precision: {compute: bf16}\n")
        words = [word for setting in settings for word in ("--set", setting)]
        subprocess.run([femc, "plan", config, "-o", plan, *words], check=True, stdout=subprocess.DEVNULL)
        out = subprocess.run([femc, "memory", plan, "--json"], check=True, capture_output=True, text=True).stdout
        return max(json.loads(out)["ranks"], key=lambda rank: rank["peak_bytes"])


def parameters(femc, model, pp, dp, micro_count, *settings):
    """That the heaviest rank works with: its bf16 working copy under ZeRO-0, padding included."""
    return heaviest(femc, model, pp, dp, micro_count, *settings)["kinds"]["parameters_bytes"] / 2


def state_at_24(count, zero, dp):
    """Bytes of the source system's state: 24N, 4N+20N/d, 2N+22N/d, 24N/d."""
    return count * (24, 4 + 20 / dp, 2 + 22 / dp, 24 / dp)[zero]


def row(femc, model, pp, dp, micro_count, zero, recompute, columns):
    cells = []
    for column in columns:
        sizes = [column, f"memory.recompute={recompute}"]
        reduce = "microbatch" if zero >= 2 else "step"
        rank = heaviest(femc, model, pp, dp, micro_count, *sizes, f"parallel.zero={zero}", f"parallel.reduce={reduce}")
        count = parameters(femc, model, pp, dp, micro_count, column)
        ours = rank["peak_bytes"]
        theirs = ours - sum(rank["kinds"][f"{kind}_bytes"] for kind in STATE) + state_at_24(count, zero, dp)
        cells.append(f"{ours / MIB:.0f} ({theirs / MIB:.0f})")
    name = f"ZeRO-{zero}" + (" + recompute" if recompute == "full" else "")
    return f"| {name} | " + " | ".join(cells) + " |"


def table(femc, model, pp, dp, micro_count, columns):
    print(f"\nModel {model}, pp={pp}, dp={dp}, microbatches of 1 sequence: {micro_count}."
          " Ours (at 24 bytes a parameter)\n")
    print("| | " + " | ".join(column.split(".")[1] for column in columns) + " |")
    print("|---" * (len(columns) + 1) + "|")
    for zero in range(4):
        for recompute in ("none", "full"):
            print(row(femc, model, pp, dp, micro_count, zero, recompute, columns))


def main():
    femc = sys.argv[1] if len(sys.argv) > 1 else "build/release/bin/femc"
    table(femc, "A", 1, 8, 1, [f"batch.seq_len={n}" for n in (16, 32, 1024)])
    for pp, dp in ((2, 4), (4, 2)):
        table(femc, "B", pp, dp, 8, [f"model.layers={n}" for n in (8, 32, 64)])


if __name__ == "__main__":
    main()
