"""Plans with lanes and an arena: the numbers of the plan without, communication beside computation, and the arena that
femc says."""
import json
import subprocess
import unittest

from harness import BIN, HAVE_MPI, EndToEnd

LANES = "overlap.lanes=true"


def overlap(trace):
    """Microseconds in which a rank communicates while it computes, over all ranks."""
    lanes = {}
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            lanes.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    total = 0.0
    for (rank, lane), spans in lanes.items():
        if lane == 0:
            continue
        for begin, end in spans:
            total += sum(max(0.0, min(end, e) - max(begin, b)) for b, e in lanes.get((rank, 0), []))
    return total


class Lanes(EndToEnd):
    def test_lanes_and_arena_keep_every_bit(self):
        for schedule in ("1f1b", "interleaved_1f1b", "zb_h1", "zb_v"):
            for zero, reduce, recompute in ((0, "step", "none"), (1, "step", "full"), (2, "microbatch", "selective"),
                                            (3, "step", "none"), (3, "microbatch", "full")):
                settings = ("parallel.pp=2", "parallel.dp=2", f"schedule.name={schedule}", f"parallel.zero={zero}",
                            f"parallel.reduce={reduce}", f"memory.recompute={recompute}")
                with self.subTest(settings=settings):
                    expected = self.train(self.plan(*settings))
                    plan = self.plan(*settings, LANES)
                    self.assert_same(self.train(plan, "--poison"), expected)
                    self.assert_same(self.train(plan, "--lanes", "inline", "--poison"), expected)

    def test_passes_that_overlap_keep_every_bit(self):
        settings = ("parallel.pp=2", "parallel.dp=2", "parallel.zero=3", "parallel.reduce=microbatch")
        expected = self.train(self.plan(*settings))
        for more in (("overlap.prefetch=0", "overlap.receive_ahead=0", "overlap.slack=0"),
                     ("overlap.prefetch=3", "overlap.receive_ahead=4", "overlap.slack=8"),
                     ("overlap.prefetch=3", "overlap.prefetch_budget=60KiB")):
            with self.subTest(more=more):
                self.assert_same(self.train(self.plan(*settings, LANES, *more), "--poison"), expected)

    @unittest.skipUnless(HAVE_MPI, "no MPI")
    def test_processes_keep_every_bit(self):
        plan = self.plan("parallel.pp=2", "parallel.dp=2", "parallel.zero=3", LANES)
        self.assert_same(self.train(plan, "--backend", "mpi"), self.train(plan))

    def test_bf16_and_tied_keep_every_bit(self):
        settings = ("parallel.pp=2", "parallel.dp=2", "precision.compute=bf16", "model.tied=true", "parallel.zero=2",
                    "parallel.reduce=microbatch")
        self.assert_same(self.train(self.plan(*settings, LANES)), self.train(self.plan(*settings)))

    def test_communication_runs_beside_computation(self):
        plan = self.plan("parallel.pp=2", "parallel.dp=2", "parallel.zero=3", "model.hidden=128",
                         "model.intermediate=512", "batch.seq_len=128", "parallel.reduce=microbatch", LANES)
        traces = {}
        for mode in ("threads", "inline"):
            file = self.fresh(".json")
            done = self.femrun(plan, "--lanes", mode, "--trace", file)
            self.assertEqual(done.returncode, 0, done.stderr)
            traces[mode] = json.loads(file.read_text())
        self.assertGreater(overlap(traces["threads"]), 0)
        self.assertEqual(overlap(traces["inline"]), 0)
        # Each action once, on the row of its lane.
        actions = plan.read_text().split("program train")[1].split("program eval")[0]
        expected = sum(line.startswith("  ") for line in actions.splitlines())
        events = [event for event in traces["threads"]["traceEvents"] if event["ph"] == "X"]
        self.assertEqual(len(events), 2 * expected)  # dp=2

    def check_arena(self, *settings):
        plan = self.plan(*settings, LANES)
        said = {}
        for program in ("train", "eval"):
            done = subprocess.run([BIN / "femc", "memory", plan, "--program", program, "--json"],
                                  capture_output=True, text=True, timeout=60, check=True)
            said[program] = json.loads(done.stdout)["ranks"]
        file = self.fresh(".json")
        done = self.femrun(plan, "--memory", file)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for rank in json.loads(file.read_text())["ranks"]:
            with self.subTest(settings=settings, rank=rank["rank"]):
                train, evaluation = said["train"][rank["pp"]], said["eval"][rank["pp"]]
                self.assertEqual(rank["blocks_bytes"], max(train["arena_bytes"], evaluation["arena_bytes"]))
                for kind in ("parameters", "masters", "gradients", "optimizer", "workspace"):
                    self.assertEqual(rank[f"{kind}_bytes"], train["persistent"][f"{kind}_bytes"], kind)
                self.assertGreaterEqual(train["arena_bytes"], train["blocks_bytes"])
        return max(rank["arena_bytes"] for rank in said["train"])

    def test_femrun_runs_in_the_arena_that_femc_says(self):
        for schedule in ("1f1b", "zb_v"):
            for zero in (0, 1, 2, 3):
                recompute = ("none", "selective", "full", "full")[zero]
                self.check_arena("parallel.pp=2", "parallel.dp=2", f"schedule.name={schedule}",
                                 f"parallel.zero={zero}", f"memory.recompute={recompute}",
                                 "parallel.reduce=" + ("step", "microbatch")[zero >= 2],
                                 "precision.compute=" + ("fp32", "bf16")[zero % 2])

    def test_residents_and_shard_groups_lie_in_the_arena(self):
        settings = ("parallel.dp=4", "parallel.zero=3", "parallel.shard=2", "parallel.reduce=bucket")
        self.assertGreater(self.check_arena(*settings, "parallel.resident=1GiB"), self.check_arena(*settings))

    def test_a_plan_without_an_arena_is_refused(self):
        plan = self.plan("parallel.pp=2", passes="communication,units,lanes")
        done = self.femrun(plan)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("arena", done.stderr)


if __name__ == "__main__":
    unittest.main()
