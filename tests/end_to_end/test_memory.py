"""What femc says that a rank holds is what femrun's ranks hold: two programs that share no code, to the byte."""
import unittest

from harness import TORCH_STATE, EndToEnd


class Forecast(EndToEnd):
    def check(self, *settings):
        plan = self.plan(*settings)
        said, evaluation = self.forecast(plan), self.forecast(plan, "eval")
        for rank in self.measurement(plan):
            with self.subTest(settings=settings, rank=rank["rank"]):
                self.assert_state(rank, said[rank["pp"]])
                # Free lists keep the most blocks of each size of either program.
                pools = said[rank["pp"]]["pool_bytes"], evaluation[rank["pp"]]["pool_bytes"]
                self.assertGreaterEqual(rank["blocks_bytes"], max(pools))
                self.assertLessEqual(rank["blocks_bytes"], sum(pools))
                held = sum(rank[f"{kind}_bytes"] for kind in (*TORCH_STATE, "blocks"))
                self.assertGreaterEqual(rank["allocator_peak_bytes"], held)

    def test_the_forecast_is_what_is_measured(self):
        for i, schedule in enumerate(("1f1b", "gpipe", "zb_h1", "interleaved_1f1b", "zb_v")):
            for zero in (0, 1, 2, 3):
                recompute = ("none", "selective", "full", "none")[zero]
                precision = ("fp32", "bf16", "fp16")[(i + zero) % 3]
                self.check("parallel.pp=2", "parallel.dp=2", f"schedule.name={schedule}", f"parallel.zero={zero}",
                           f"memory.recompute={recompute}", f"precision.compute={precision}",
                           f"model.dropout={0.1 * (i % 2)}",
                           "parallel.reduce=" + ("step", "microbatch")[zero >= 2])

    def test_replicas_of_two_directions(self):
        for dp in (1, 2):
            self.check("parallel.pp=2", f"parallel.dp={dp}", "schedule.name=dualpipe", "batch.global=16")

    def test_the_forecast_follows_shard_groups_and_buckets(self):
        for zero, reduce in ((1, "step"), (2, "microbatch"), (3, "bucket"), (3, "microbatch")):
            self.check("parallel.dp=4", "parallel.shard=2", f"parallel.zero={zero}", f"parallel.reduce={reduce}",
                       "parallel.gather=forward", "precision.compute=bf16")

    def test_without_an_evaluation_blocks_are_exact(self):
        for settings in ((), ("memory.recompute=full",), ("schedule.name=zb_h1", "parallel.zero=3")):
            plan = self.plan("parallel.pp=2", "parallel.dp=2", "data.eval=", *settings)
            said = self.forecast(plan)
            for rank in self.measurement(plan):
                self.assertEqual(rank["blocks_bytes"], said[rank["pp"]]["pool_bytes"])

    def test_recompute_fits_into_a_limit(self):
        free = self.plan("parallel.pp=2", "schedule.name=gpipe")
        most = max(rank["peak_bytes"] for rank in self.forecast(free))
        limit = most - 20000
        settings = ("parallel.pp=2", "schedule.name=gpipe", f"memory.limit={limit}")
        refused = self.femc_plan(*settings)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("[V28]", refused.stderr)
        fitted = self.plan(*settings, "memory.recompute=fit")
        self.assertIn("Recompute", fitted.read_text())
        self.assert_same(self.train(fitted), self.train(free))
        impossible = self.femc_plan("parallel.pp=2", "memory.limit=100KiB", "memory.recompute=fit")
        self.assertEqual(impossible.returncode, 1)
        self.assertIn("even if every block is computed again", impossible.stderr)


if __name__ == "__main__":
    unittest.main()
