"""Searched schedules against the exact optimum of small pipelines, which a constraint program proves.

The orders come from `femc plan`; spans and peaks are computed here, from the text of the plan.
"""
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from pipeline_optimum import Pipeline, least_span  # noqa: E402

FEMC = Path(os.environ["FEM_BIN"]).resolve() / "femc"
KINDS = {"Forward": "F", "Backward": "B", "BackwardInput": "I", "BackwardWeight": "W"}
TOLERANCE = 0.01

# Activations of one microbatch of the 1.5B model of arXiv 2401.10241, table 5: hidden size 2304, 24 heads, 1024 tokens.
FORWARD_MEMORY, WEIGHT_MEMORY = 34 * 2304 + 5 * 24 * 1024, -32 * 2304
COSTS = {  # times of F, I and W, of a transfer; changes of memory by F, I and W
    "equal": ((1, 1, 1), 0, (1, 0, -1)),
    "unequal": ((10, 12, 8), 0, (1, 0, -1)),
    "1.5B": ((18522, 18086, 9337), 601, (FORWARD_MEMORY, -FORWARD_MEMORY - WEIGHT_MEMORY, WEIGHT_MEMORY)),
}


def plan_order(schedule, pipeline, parameters=""):
    """[rank]: the operations (kind, stage, microbatch) of the plan that femc makes."""
    stages = pipeline.stages()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "run.yaml"
        config.write_text(f"model: {{layers: {stages}, hidden: 16, intermediate: 32, heads: 2, vocab: 32}}\n"
                          f"parallel: {{pp: {pipeline.ranks}}}\n"
                          f"schedule: {{name: {schedule}, params: '{parameters}'}}\n"
                          f"batch: {{global: {pipeline.microbatches}, micro: 1, seq_len: 8}}\n", encoding="utf-8")
        result = subprocess.run([FEMC, "plan", config], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise RuntimeError(result.stderr)
    ranks = []
    for line in result.stdout.splitlines():
        if line.startswith("rank "):
            ranks.append([])
        found = re.match(r" *(\w+) s(\d+) m(\d+)$", line)
        if found and found[1] in KINDS:
            ranks[-1].append((KINDS[found[1]], int(found[2]), int(found[3])))
    return ranks


def stage_span(order, pipeline):
    """Every rank runs its order as early as it can."""
    time = dict(zip("FIW", pipeline.times))
    time["B"] = time["I"] + time["W"]
    last = pipeline.stages() - 1
    ends, clock, first, position = {}, [0] * len(order), [None] * len(order), [0] * len(order)

    def ready(kind, stage, microbatch):
        needs = []
        if kind == "F" and stage > 0:
            needs.append((("F", stage - 1, microbatch), pipeline.delay(stage - 1)))
        if kind in "IB":
            needs.append((("F", stage, microbatch), 0))
            if stage < last:
                needs.append((("I", stage + 1, microbatch), pipeline.delay(stage)))
        if kind == "W":
            needs.append((("I", stage, microbatch), 0))
        if any(need not in ends for need, _ in needs):
            return None
        return max([ends[need] + delay for need, delay in needs], default=0)

    moved = True
    while moved:
        moved = False
        for rank, operations in enumerate(order):
            while position[rank] < len(operations):
                kind, stage, microbatch = operations[position[rank]]
                at = ready(kind, stage, microbatch)
                if at is None:
                    break
                at = max(at, clock[rank])
                first[rank] = at if first[rank] is None else first[rank]
                clock[rank] = at + time[kind]
                ends["I" if kind == "B" else kind, stage, microbatch] = clock[rank]
                position[rank] += 1
                moved = True
    assert all(done == len(operations) for done, operations in zip(position, order)), "the ranks block each other"
    return max(end - start for end, start in zip(clock, first))


def peak_memory(order, pipeline):
    change = dict(zip("FIW", pipeline.memory))
    change["B"] = change["I"] + change["W"]
    peak = 0
    for operations in order:
        now = 0
        for kind, _, _ in operations:
            now += change[kind]
            peak = max(peak, now)
    return peak


def pipelines(ranks, microbatches):
    """One for each kind of costs and cap: p, 1.5 p and 2 p microbatches' activations on a rank."""
    for name, (times, transfer, memory) in COSTS.items():
        for halves in (2, 3, 4):
            cap = halves * ranks * memory[0] // 2
            yield name, halves / 2, Pipeline(ranks, microbatches, times, transfer, memory, cap)


def parameters(pipeline):
    names = ("forward", "input", "weight", "transfer", "forward_memory", "weight_memory", "cap")
    values = (*pipeline.times, pipeline.transfer, pipeline.memory[0], pipeline.memory[2], pipeline.cap)
    return ",".join(f"{name}={value}" for name, value in zip(names, values))


class SearchOptimum(unittest.TestCase):
    def check(self, ranks, microbatches):
        plain = {name: plan_order(name, Pipeline(ranks, microbatches)) for name in ("zb_h1", "zb_h2", "1f1b")}
        for costs, caps, pipeline in pipelines(ranks, microbatches):
            with self.subTest(costs=costs, caps=caps, ranks=ranks, microbatches=microbatches):
                optimum = least_span(pipeline)
                order = plan_order("zb_kp", pipeline, parameters(pipeline))
                found = stage_span(order, pipeline)
                self.assertLessEqual(peak_memory(order, pipeline), pipeline.cap)
                self.assertGreaterEqual(found, optimum, "the constraint program is wrong")
                self.assertLessEqual(found, optimum * (1 + TOLERANCE))
                for name, other in plain.items():
                    if peak_memory(other, pipeline) <= pipeline.cap:
                        self.assertLessEqual(found, stage_span(other, pipeline), name)

    def test_two_ranks(self):
        for microbatches in range(1, 7):
            self.check(2, microbatches)

    def test_three_ranks(self):
        for microbatches in range(1, 7):
            self.check(3, microbatches)

    def test_four_ranks(self):
        for microbatches in range(1, 7):
            self.check(4, microbatches)

    def check_two_chunks(self, ranks, microbatches, costs):
        """zb_v under its own cap, 2 p chunks of microbatches."""
        times, transfer, _ = COSTS[costs]
        pipeline = Pipeline(ranks, microbatches, times, transfer, (1, 0, -1), 2 * ranks, "v")
        with self.subTest(costs=costs, ranks=ranks, microbatches=microbatches):
            values = ",".join(f"{name}={value}" for name, value in
                              zip(("forward", "input", "weight", "transfer"), (*times, transfer)))
            order = plan_order("zb_v", pipeline, values)
            found, optimum = stage_span(order, pipeline), least_span(pipeline)
            self.assertLessEqual(peak_memory(order, pipeline), pipeline.cap)
            self.assertGreaterEqual(found, optimum, "the constraint program is wrong")
            self.assertLessEqual(found, optimum * (1 + TOLERANCE))

    def test_two_chunks_a_rank(self):
        # With the times of the 1.5B model five microbatches take the constraint program minutes.
        for microbatches in range(3, 7):
            for costs in COSTS if microbatches < 5 else ("equal", "unequal"):
                self.check_two_chunks(2, microbatches, costs)
        for microbatches in (5, 6):
            self.check_two_chunks(3, microbatches, "equal")

    def test_plain_orders_miss_the_optimum(self):
        """What the search has to find: none of these would pass for it."""
        for times, names in (((1, 1, 1), ("zb_h1", "1f1b")), ((10, 12, 8), ("zb_h1", "zb_h2", "1f1b"))):
            pipeline = Pipeline(3, 6, times, cap=6)
            optimum = least_span(pipeline)
            for name in names:
                span = stage_span(plan_order(name, pipeline), pipeline)
                self.assertGreater(span, optimum * (1 + TOLERANCE), name)

    def test_the_constraint_program_knows_published_optima(self):
        """Zero bubble under 2 p (arXiv 2401.10241, section 3), (p - 1)(F + I - W) under p, one microbatch alone."""
        self.assertEqual(least_span(Pipeline(3, 6, cap=6)), 18)
        self.assertEqual(least_span(Pipeline(4, 6, cap=4)), 18 + 3)
        self.assertEqual(least_span(Pipeline(4, 1, (10, 12, 8), 5, cap=1)), 4 * 22 + 6 * 5 + 8)


if __name__ == "__main__":
    unittest.main()
