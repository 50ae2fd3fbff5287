"""Saved tensors and moments in host memory: the same bits, less device memory, and the host memory that femc says."""
import itertools
import json
import subprocess
import unittest

from harness import BIN, HAVE_MPI, STATE, EndToEnd

PIPELINE = ("parallel.pp=2", "schedule.name=gpipe", "memory.offload=saved", "memory.offload_gap=4")


class Offload(EndToEnd):
    def memory(self, plan):
        done = subprocess.run([BIN / "femc", "memory", plan, "--json"], capture_output=True, text=True, timeout=60,
                              check=True)
        return json.loads(done.stdout)["ranks"]

    def test_every_bit_is_kept(self):
        for settings in (PIPELINE, (*PIPELINE, "memory.recompute=selective"), (*PIPELINE, "schedule.name=zb_h1"),
                         (*PIPELINE, "parallel.dp=2", "parallel.zero=3", "precision.compute=bf16")):
            with self.subTest(settings=settings):
                expected = self.train(self.plan(*settings, "memory.offload=none"))
                for lanes in ("false", "true"):
                    plan = self.plan(*settings, f"overlap.lanes={lanes}")
                    self.assertIn("Offload", plan.read_text())
                    self.assert_same(self.train(plan), expected)
                self.assert_same(self.train(plan, "--lanes", "inline"), expected)

    def test_host_memory_takes_what_the_device_gives_up(self):
        for lanes in ("false", "true"):
            plan = self.plan(*PIPELINE, "data.eval=", f"overlap.lanes={lanes}")
            kept = self.memory(self.plan(*PIPELINE, "data.eval=", "memory.offload=none", f"overlap.lanes={lanes}"))
            said = self.memory(plan)
            file = self.fresh(".json")
            done = self.femrun(plan, "--memory", file)
            self.assertEqual(done.returncode, 0, done.stderr)
            for rank in json.loads(file.read_text())["ranks"]:
                mine, before = said[rank["pp"]], kept[rank["pp"]]
                self.assertEqual(rank["host_bytes"], mine["host_bytes"])
                self.assertGreater(mine["host_bytes"], 0)
                self.assertEqual(before["host_bytes"], 0)
                self.assertLess(mine["peak_bytes"], before["peak_bytes"])
                self.assertEqual(rank["blocks_bytes"], mine["arena_bytes"] or mine["pool_bytes"])

    def test_a_backward_that_is_near_is_left_alone(self):
        plan = self.plan(*PIPELINE, "memory.offload_gap=1000")
        self.assertNotIn("Offload", plan.read_text())

    def test_moments_keep_every_bit(self):
        cases = (("schedule.name=1f1b",), ("schedule.name=interleaved_1f1b", "precision.compute=bf16"),
                 ("schedule.name=zb_v", "model.tied=true"), ("schedule.name=dualpipe", "batch.global=16"),
                 *(("parallel.dp=2", f"parallel.zero={zero}", "precision.compute=bf16") for zero in (1, 2, 3)),
                 ("parallel.dp=4", "parallel.zero=3", "parallel.shard=2"), ("precision.compute=fp16",))
        for settings in cases:
            with self.subTest(settings=settings):
                expected = self.train(self.plan("parallel.pp=2", *settings))
                for other in (("memory.offload=optimizer",), ("memory.offload=all", "memory.offload_gap=2"),
                              ("memory.offload=optimizer", "overlap.lanes=true"),
                              ("memory.offload=all", "overlap.lanes=true", "overlap.prefetch=3")):
                    plan = self.plan("parallel.pp=2", *settings, *other)
                    self.assertIn("ReloadOptimizer", plan.read_text())
                    self.assert_same(self.train(plan, "--poison"), expected)
                    if "overlap.lanes=true" in other:
                        self.assert_same(self.train(plan, "--lanes", "inline"), expected)

    @unittest.skipUnless(HAVE_MPI, "no mpirun")
    def test_moments_of_processes(self):
        settings = ("parallel.pp=2", "parallel.dp=2", "parallel.zero=1")
        plan = self.plan(*settings, "memory.offload=optimizer", "overlap.lanes=true")
        self.assert_same(self.train(plan, "--backend", "mpi"), self.train(self.plan(*settings)))

    def test_a_checkpoint_is_the_same_with_moments_on_either_side(self):
        settings = ("parallel.pp=2", "parallel.dp=2", "parallel.zero=2")
        plans = [self.plan(*settings), self.plan(*settings, "memory.offload=optimizer"),
                 self.plan("parallel.pp=2", "memory.offload=optimizer", "overlap.lanes=true", "parallel.dp=2")]
        constant = ("--set", "optimizer.decay=constant")  # the rate does not depend on the number of steps
        expected = self.train(plans[0], "--steps", "6", *constant)
        for first in plans:
            save, metrics = self.fresh(".save"), self.fresh(".jsonl")
            self.train(first, "--steps", "4", *constant, save=save, metrics=metrics)
            for second in plans:
                again, lines = self.fresh(".save"), self.fresh(".jsonl")
                lines.write_text(metrics.read_text())
                found = self.train(second, "--steps", "6", *constant, "--resume", save, save=again, metrics=lines)
                self.assert_same(found, expected)

    def test_moments_leave_the_device(self):
        for zero, lanes in itertools.product((0, 1, 3), ("false", "true")):
            settings = ("parallel.pp=2", "parallel.dp=2", f"parallel.zero={zero}", f"overlap.lanes={lanes}",
                        "data.eval=", "precision.compute=bf16")
            kept, moved = self.plan(*settings), self.plan(*settings, "memory.offload=optimizer")
            before, said = self.memory(kept), self.memory(moved)
            dry = self.measurement(moved, "--device", "meta")
            for rank in self.measurement(moved):
                with self.subTest(zero=zero, lanes=lanes, rank=rank["rank"]):
                    mine, old = said[rank["pp"]], before[rank["pp"]]
                    self.assertEqual(rank["host_bytes"], mine["host_bytes"])
                    self.assertEqual(mine["host_bytes"], old["persistent"]["optimizer_bytes"])
                    self.assertEqual(rank["optimizer_bytes"], 0)
                    self.assertEqual(rank["blocks_bytes"], mine["arena_bytes"] or mine["pool_bytes"])
                    self.assertLess(mine["peak_bytes"], old["peak_bytes"])
                    for kind in STATE:
                        self.assertEqual(rank[f"{kind}_bytes"], mine["persistent"][f"{kind}_bytes"], kind)
                    if rank["dp"] == 0:
                        self.assertEqual([rank[f"{kind}_bytes"] for kind in (*STATE, "blocks", "host")],
                                         [dry[rank["pp"]][f"{kind}_bytes"] for kind in (*STATE, "blocks", "host")])

    def test_a_plan_without_units_is_refused(self):
        plan = self.plan("memory.offload=optimizer", passes="communication")
        done = self.femrun(plan)
        self.assertEqual(done.returncode, 1)
        self.assertIn("memory.offload=optimizer needs a plan of level unit", done.stderr)


if __name__ == "__main__":
    unittest.main()
