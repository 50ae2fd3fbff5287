"""What the offsets of arenas cost: python3 tests/bench/arena_study.py build/release/bin/femc [KEY=VALUE...]

Plans six schedules on four pipeline ranks in several combinations of ZeRO and recompute with lanes, and prints for each
rank the arena in MiB, how much more it is than the blocks that are alive at once, and how much more free lists of equal
sizes would take."""
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

CONFIG = """
model: {layers: 16, hidden: 2048, intermediate: 5504, heads: 16, vocab: 32000}
parallel: {pp: 4, dp: 2}
batch: {global: 64, micro: 1, seq_len: 2048}
precision: {compute: bf16}
overlap: {lanes: true}
"""
SCHEDULES = ("1f1b", "gpipe", "zb_h1", "zb_v", "interleaved_1f1b", "v_half")
CASES = ((0, "none"), (0, "full"), (1, "selective"), (3, "none"), (3, "full"), (3, "selective"))


def main():
    femc = sys.argv[1]
    gaps, pools = [], []
    with tempfile.TemporaryDirectory() as folder:
        config, plan = Path(folder) / "config.yaml", Path(folder) / "plan.txt"
        config.write_text(CONFIG)
        for schedule in SCHEDULES:
            for zero, recompute in CASES:
                settings = [f"schedule.name={schedule}", f"parallel.zero={zero}", f"memory.recompute={recompute}",
                            "parallel.reduce=" + ("step", "microbatch")[zero == 3], *sys.argv[2:]]
                words = [word for setting in settings for word in ("--set", setting)]
                subprocess.run([femc, "plan", config, "-o", plan, *words], check=True, stdout=subprocess.DEVNULL)
                done = subprocess.run([femc, "memory", plan, "--json"], check=True, capture_output=True, text=True)
                line = f"{schedule:18} zero={zero} {recompute:9}"
                for rank in json.loads(done.stdout)["ranks"]:
                    alive = rank["blocks_bytes"]
                    gaps.append(100 * rank["gaps_bytes"] / alive)
                    pools.append(100 * (rank["pool_bytes"] / alive - 1))
                    line += f"  {rank['arena_bytes'] / 2**20:7.0f} (+{gaps[-1]:4.1f}%, free lists +{pools[-1]:4.1f}%)"
                print(line)
    print(f"arena:      median +{statistics.median(gaps):.1f}%, most +{max(gaps):.1f}%")
    print(f"free lists: median +{statistics.median(pools):.1f}%, most +{max(pools):.1f}%")


if __name__ == "__main__":
    main()
