"""Saved tensors in host memory: the same bits, less device memory, and the host memory that femc says."""
import json
import subprocess
import unittest

from harness import BIN, EndToEnd

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


if __name__ == "__main__":
    unittest.main()
