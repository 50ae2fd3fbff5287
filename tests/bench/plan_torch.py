"""Seconds that torch.distributed.pipelining takes to generate and lower a schedule for all ranks: see README.md.

Its schedule classes run unchanged on stages that only know their index; no process group, no training. Every row runs
in fresh processes:  python tests/bench/plan_torch.py --schedules ZBVZeroBubble --sizes 8,32,2 16,64,2 --repeat 3
"""
import argparse
import statistics
import subprocess
import sys
import time

SCHEDULES = ("Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV")
SIZES = ("4,16,2", "8,32,2", "16,64,2", "32,256,2", "64,512,2", "64,1024,2")


class Stage:
    """What the constructors of schedules read of a stage."""

    def __init__(self, index, count, ranks):
        self.stage_index, self.num_stages = index, count
        self.group_size, self.group_rank = ranks, 0
        self.is_first, self.is_last = index == 0, index == count - 1
        self.submod, self.has_backward = None, False
        self.stage_index_to_group_rank = None


def measure(name, ranks, microbatches, chunks):
    from torch.distributed.pipelining import schedules
    from torch.distributed.pipelining._utils import generate_rank_to_stage_mapping

    style = "v" if name in ("ZBVZeroBubble", "DualPipeV") else "loop"
    own = generate_rank_to_stage_mapping(ranks, ranks * chunks, style=style)[0]
    stages = [Stage(index, ranks * chunks, ranks) for index in own]
    start = time.perf_counter()
    schedule = schedules.get_schedule_class(name)(stages, microbatches, loss_fn=lambda *_: None)
    seconds = time.perf_counter() - start
    return seconds, sum(len(rank) for rank in schedule.pipeline_order_with_comms.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedules", nargs="+", default=SCHEDULES, choices=SCHEDULES)
    parser.add_argument("--sizes", nargs="+", default=SIZES, metavar="RANKS,MICROBATCHES,CHUNKS")
    parser.add_argument("--repeat", type=int, default=3, help="fresh processes for each row; the median counts")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(*measure(arguments.one[0], *map(int, arguments.one[1].split(","))))
        return
    for size in arguments.sizes:
        for name in arguments.schedules:
            rows = [subprocess.run([sys.executable, __file__, "--one", name, size], stdout=subprocess.PIPE, text=True,
                                   check=True).stdout.split() for _ in range(arguments.repeat)]
            print(f"{name} {size}: {statistics.median(float(row[0]) for row in rows):.4f} s, {rows[0][1]} actions",
                  flush=True)


if __name__ == "__main__":
    main()
