"""Dropout through the two binaries: what its masks must not depend on."""
import unittest

import numpy as np

from harness import HAVE_MPI, EndToEnd


class Dropout(EndToEnd):
    DROP = ("model.dropout=0.1",)

    def test_bits_do_not_depend_on_pipeline_schedule_or_backend(self):
        one = self.train(self.plan(*self.DROP))
        for layout in (("parallel.pp=4",), *(("parallel.pp=2", f"schedule.name={name}") for name in
                                             ("1f1b", "zb_h1", "interleaved_1f1b", "dualpipe_v"))):
            with self.subTest(layout=layout):
                self.assert_same(self.train(self.plan(*self.DROP, *layout)), one)
        if HAVE_MPI:
            self.assert_same(self.train(self.plan(*self.DROP, "parallel.pp=2"), "--backend", "mpi"), one)

    def test_recompute_and_shards_keep_the_bits(self):
        """A mask is made anew for the recompute and for both halves of the backward."""
        for precision in ("fp32", "bf16", "fp16"):
            layout = (*self.DROP, "parallel.pp=2", "parallel.dp=2", f"precision.compute={precision}")
            kept = self.train(self.plan(*layout))
            for change in (("memory.recompute=full",), ("memory.recompute=selective",),
                           ("memory.recompute=full", "parallel.zero=3"), ("parallel.zero=1", "schedule.name=zb_h1"),
                           ("memory.recompute=selective", "parallel.zero=3", "overlap.lanes=true")):
                with self.subTest(change=change, precision=precision):
                    self.assert_same(self.train(self.plan(*layout, *change), "--poison"), kept)

    def test_replicas_drop_the_same(self):
        """Each sample keeps its masks; the order of sums differs as it does without dropout (test_layouts.py)."""
        one = self.train(self.plan(*self.DROP))
        for dp in (2, 4):
            with self.subTest(dp=dp):
                self.assert_close(self.train(self.plan(*self.DROP, f"parallel.dp={dp}")), one, 1e-6)
        with self.subTest(micro=2):
            self.assert_close(self.train(self.plan(*self.DROP, "batch.micro=2")), one, 3e-6)
        with self.subTest("two directions"):  # half of the microbatches in each
            both = self.train(self.plan(*self.DROP, "parallel.pp=2", "schedule.name=dualpipe"))
            self.assert_close(both, one, 1e-6)

    def test_another_seed_drops_others_and_evaluation_drops_nothing(self):
        still = ("optimizer.lr=0", "run.eval_interval=1")  # the weights never change
        plan = self.plan(*self.DROP, *still)
        dropped, plain = self.train(plan), self.train(self.plan(*still))
        self.assertEqual(dropped.evals, plain.evals)
        for with_dropout, without in zip(dropped.losses, plain.losses):
            self.assertNotEqual(with_dropout, without)
        self.assertNotEqual(self.train(plan, "--init", self.saved(plan), "--set", "run.seed=2").losses, dropped.losses)
        self.assertEqual(self.train(plan, "--init", self.saved(plan)).losses, dropped.losses)

    def saved(self, plan):
        """A checkpoint with the weights that the plan begins with."""
        save = self.fresh(".save")
        self.train(plan, "--steps", "0", save=save)
        return save

    def test_zero_is_none_at_all(self):
        self.assert_same(self.train(self.plan("model.dropout=0")), self.train(self.plan()))

    def test_training_learns_through_it(self):
        losses = self.train(self.plan(*self.DROP, "parallel.pp=2"), "--steps", "30").losses
        self.assertTrue(np.all(np.isfinite(losses)))
        self.assertLess(losses[-1], losses[0] - 0.5)


if __name__ == "__main__":
    unittest.main()
