"""fp16 with its loss scale, skipped steps, and gradients sent in bf16, through the two binaries."""
import json
import subprocess
import unittest
from pathlib import Path

import numpy as np

from harness import BIN, HAVE_MPI, EndToEnd


class LossScale(EndToEnd):
    FP16 = ("precision.compute=fp16",)
    LAYOUT = (*FP16, "parallel.pp=2", "parallel.dp=2")
    HUGE = ("precision.loss_scale=67108864",)  # 2^26 on the mean, 2^18 on the sum of 256 losses: beyond fp16
    STEADY = ("optimizer.decay=constant", "run.eval_interval=0")

    def metrics(self, plan, *options):
        """(loss scale, steps skipped so far) of each step of a run, and what it left."""
        path = self.fresh(".jsonl")
        trained = self.train(plan, *options, metrics=path)
        lines = [json.loads(line) for line in Path(path).read_text().splitlines()]
        return [(line["loss_scale"], line["skipped"]) for line in lines if "loss" in line], trained

    def test_fp16_stays_near_fp32(self):
        """bf16 is known to stay within 4e-4 of fp32 over 20 steps (of a larger model); fp16 rounds to an eighth."""
        steps = ("--steps", "20")
        wide = self.train(self.plan("parallel.pp=2"), *steps)
        narrow = self.train(self.plan(*self.FP16, "parallel.pp=2"), *steps)
        np.testing.assert_allclose(narrow.losses, wide.losses, rtol=4e-4)
        self.assertLess(narrow.losses[-1], narrow.losses[0] - 0.5)
        self.assertNotEqual(narrow.losses, wide.losses)

    def test_other_formats_have_no_scale(self):
        path = self.fresh(".jsonl")
        self.train(self.plan("precision.compute=bf16"), metrics=path)
        self.assertNotIn("loss_scale", Path(path).read_text())

    def test_layouts_that_keep_bits_keep_them_in_fp16(self):
        one = self.train(self.plan(*self.FP16, "parallel.dp=2"))
        for layout in (("parallel.pp=2",), ("parallel.zero=2",), ("parallel.pp=2", "parallel.zero=3"),
                       ("parallel.pp=2", "parallel.zero=2", "overlap.lanes=true"),
                       ("memory.recompute=full",), ("memory.recompute=selective", "parallel.pp=4"),
                       ("parallel.pp=2", "schedule.name=zb_h1")):
            with self.subTest(layout=layout):
                self.assert_same(self.train(self.plan(*self.FP16, "parallel.dp=2", *layout), "--poison"), one)

    def test_an_overflow_skips_the_step_on_all_ranks_and_halves_the_scale(self):
        plan = self.plan(*self.LAYOUT, *self.HUGE, "precision.loss_scale_interval=3", *self.STEADY)
        steps, trained = self.metrics(plan, "--steps", "24")
        leading = next(i for i, (_, count) in enumerate(steps) if count != i + 1)  # skips before the first update
        self.assertGreater(leading, 0)
        # Replayed as a state machine: a skip halves, three updates in a row double.
        scale, steady = 2 ** 26, 0
        for i, (now, count) in enumerate(steps):
            self.assertEqual(now, scale, f"step {i + 1}")
            if count > (steps[i - 1][1] if i else 0):
                scale, steady = scale // 2, 0
            else:
                steady += 1
                if steady == 3:
                    scale, steady = scale * 2, 0
        self.assertGreater(steps[-1][1], leading, "the scale grew until it overflowed again")
        self.assertTrue(all(np.isfinite(trained.losses)))
        self.assertLess(trained.losses[-1], trained.losses[0] - 0.3)

    @unittest.skipUnless(HAVE_MPI, "no mpirun")
    def test_threads_processes_and_lanes_skip_the_same_steps(self):
        plan = self.plan(*self.LAYOUT, *self.HUGE, "parallel.zero=1", *self.STEADY)
        threads, a = self.metrics(plan, "--steps", "14")
        processes, b = self.metrics(plan, "--steps", "14", "--backend", "mpi")
        self.assertEqual(processes, threads)
        self.assertGreater(threads[-1][1], 2)
        self.assert_same(b, a)
        lanes, c = self.metrics(self.plan(*self.LAYOUT, *self.HUGE, "parallel.zero=1", *self.STEADY,
                                          "overlap.lanes=true"), "--steps", "14")
        self.assertEqual(lanes, threads)
        self.assert_same(c, a)

    def test_a_skip_is_logged_with_step_and_rank(self):
        done = self.femrun(self.plan(*self.LAYOUT, *self.HUGE), "--steps", "12")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"step 1 skipped: gradient of [\w.]+ on rank \d \(pp \d dp \d\) is not finite "
                                      r"\(1 skipped so far; loss scale 67108864 -> 33554432\)")

    def test_a_resumed_run_keeps_the_scale(self):
        plan = self.plan(*self.LAYOUT, *self.HUGE, "precision.loss_scale_interval=4", *self.STEADY)
        whole, a = self.metrics(plan, "--steps", "16")
        save, path = self.fresh(".save"), self.fresh(".jsonl")
        self.train(plan, "--steps", "5", save=save, metrics=path)
        again = self.train(plan, "--steps", "16", "--resume", save, save=save, metrics=path)
        lines = [json.loads(line) for line in Path(path).read_text().splitlines()]
        self.assertEqual([(line["loss_scale"], line["skipped"]) for line in lines if "loss" in line], whole)
        self.assertEqual(again.losses, a.losses)
        self.assertEqual([name for name in a.tensors if again.tensors[name] != a.tensors[name]], [])


class SkipLimit(EndToEnd):
    """A loss that is never finite again ends a run, in every format."""

    def check(self, done, message):
        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        self.assertRegex(done.stderr, message)
        self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)

    def test_a_loss_that_is_not_finite(self):
        for compute in ("fp32", "bf16"):
            plan = self.plan("parallel.pp=2", "parallel.dp=2", f"precision.compute={compute}", "optimizer.lr=1e38",
                             "optimizer.warmup_steps=0", "run.eval_interval=0")
            done = self.femrun(plan, "--steps", "50", "--set", "run.skip_limit=3")
            self.check(done, r"step 4: 3 steps in a row were skipped \(run.skip_limit\); the last: loss of "
                             r"microbatch m0 on rank 2 \(pp 1 dp 0\) is not finite")
            self.assertEqual(done.stdout.count(" skipped: "), 3)

    def test_a_scale_that_never_fits(self):
        plan = self.plan(*LossScale.LAYOUT, "precision.loss_scale=1099511627776", "run.skip_limit=3")
        self.check(self.femrun(plan, "--steps", "50"), "step 3: 3 steps in a row were skipped .*; the last: "
                                                       "gradient of .*; the loss scale is down to 137438953472")

    @unittest.skipUnless(HAVE_MPI, "no mpirun")
    def test_processes_end_with_one_message_and_the_same_code(self):
        plan = self.plan(*LossScale.LAYOUT, "precision.loss_scale=1099511627776", "run.skip_limit=3")
        done = self.femrun(plan, "--steps", "50", "--backend", "mpi")
        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        self.assertEqual(done.stderr.count("steps in a row were skipped"), 1, done.stderr)

    def test_settings_that_do_not_fit_are_refused(self):
        for setting, message in (("precision.loss_scale=1000", "=1000 is not a power of two; nearest: 512 or 1024"),
                                 ("precision.loss_scale=0", "loss_scale=0 must be between 1 and 1099511627776"),
                                 ("precision.loss_scale_interval=0", "must be between 1 and 2147483647"),
                                 ("run.skip_limit=0", "run.skip_limit=0 must be between 1 and 2147483647"),
                                 ("precision.reduce=fp16", "'fp16' is not one of fp32|bf16"),
                                 ("model.dropout=1", "model.dropout=1 must be at least 0 and below 1")):
            with self.subTest(setting=setting):
                done = self.femc_plan(setting)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn(message, done.stderr)
        done = self.femrun(self.plan(), "--set", "precision.loss_scale=1000")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("precision.loss_scale is 1000, must be a power of two; nearest: 512 or 1024", done.stderr)


class Payload(EndToEnd):
    """precision.reduce=bf16: half the bytes to the rank that sums, which sums in fp32."""
    BF16 = ("parallel.pp=2", "parallel.dp=2", "precision.reduce=bf16")

    def test_zero_stages_have_the_same_bits(self):
        for reduce in ("step", "microbatch"):
            layout = (*self.BF16, f"parallel.reduce={reduce}")
            whole = self.train(self.plan(*layout))
            for zero in (1, 2, 3):
                for lanes in ("false", "true"):
                    with self.subTest(zero=zero, reduce=reduce, lanes=lanes):
                        plan = self.plan(*layout, f"parallel.zero={zero}", f"overlap.lanes={lanes}")
                        self.assert_same(self.train(plan, "--poison"), whole)

    @unittest.skipUnless(HAVE_MPI, "no mpirun")
    def test_threads_and_processes_have_the_same_bits(self):
        for zero in (0, 2):
            plan = self.plan(*self.BF16, f"parallel.zero={zero}")
            with self.subTest(zero=zero):
                self.assert_same(self.train(plan, "--backend", "mpi"), self.train(plan))

    def test_it_stays_near_fp32(self):
        """Rounding changes a gradient by at most 2^-9 of itself, and so its norm; the first loss comes before it."""
        for layout in (("parallel.dp=4",), ("parallel.pp=2", "parallel.dp=2", "model.tied=true"),
                       ("parallel.dp=2", "precision.compute=fp16")):
            with self.subTest(layout=layout):
                wide = self.train(self.plan(*layout), "--steps", "20")
                narrow = self.train(self.plan(*layout, "precision.reduce=bf16"), "--steps", "20")
                self.assertEqual(narrow.losses[0], wide.losses[0])
                self.assertNotEqual(narrow.norms[0], wide.norms[0])
                np.testing.assert_allclose(narrow.norms[0], wide.norms[0], rtol=2 ** -9)
                np.testing.assert_allclose(narrow.losses, wide.losses, rtol=2e-3)

    def test_one_replica_sends_nothing(self):
        self.assert_same(self.train(self.plan("precision.reduce=bf16")), self.train(self.plan()))

    def test_the_forecast_counts_the_bytes(self):
        """Of 4 bytes there and 4 back, an all-reduce keeps 2 and 4; a reduce-scatter 2 of 4, the gather after it is not
        of gradients."""
        def sent(*settings):
            plan = self.plan("parallel.dp=2", *settings)
            done = subprocess.run([BIN / "femc", "simulate", plan, "--json"], capture_output=True, text=True,
                                  timeout=60, check=True)
            return json.loads(done.stdout)["traffic"]["collectives"]["in_node_bytes"]
        self.assertAlmostEqual(sent("precision.reduce=bf16") / sent(), 0.75, delta=0.01)
        wide, narrow = sent("parallel.zero=3"), sent("parallel.zero=3", "precision.reduce=bf16")
        self.assertLess(narrow, wide)


if __name__ == "__main__":
    unittest.main()
