"""ZeRO and recompute, through the two binaries: what is divided or computed again never changes a bit."""
import unittest

from harness import HAVE_MPI, EndToEnd


class Sharding(EndToEnd):
    LAYOUT = ("parallel.pp=2", "parallel.dp=2")

    def reference(self, *layout):
        return self.train(self.plan(*layout))

    def test_zero_stages_have_the_same_bits(self):
        for reduce in ("step", "microbatch"):
            layout = (*self.LAYOUT, f"parallel.reduce={reduce}")
            whole = self.reference(*layout)
            for zero in (1, 2, 3):
                with self.subTest(zero=zero, reduce=reduce):
                    self.assert_same(self.train(self.plan(*layout, f"parallel.zero={zero}"), "--poison"), whole)

    def test_every_schedule_can_be_sharded(self):
        for name in ("gpipe", "interleaved_1f1b", "zb_h1", "zb_v", "dualpipe_v", "dualpipe"):
            layout = (*self.LAYOUT, f"schedule.name={name}")
            whole = self.reference(*layout)
            with self.subTest(schedule=name):
                sharded = self.plan(*layout, "parallel.zero=3", "memory.recompute=full")
                self.assert_same(self.train(sharded, "--poison"), whole)

    def test_two_directions_reduce_once_a_step(self):
        refused = self.femc_plan(*self.LAYOUT, "schedule.name=dualpipe", "parallel.reduce=microbatch")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("parallel.reduce=microbatch with a schedule of two directions", refused.stderr)

    def test_recompute_has_the_same_bits(self):
        for precision in ("fp32", "bf16"):
            layout = ("parallel.pp=2", f"precision.compute={precision}")
            kept = self.reference(*layout)
            for mode in (("full",), ("selective",), ("full", "memory.recompute_every=2"),
                         ("selective", "memory.recompute_first=1", "memory.recompute_last=2")):
                with self.subTest(mode=mode, precision=precision):
                    self.assert_same(self.train(self.plan(*layout, f"memory.recompute={mode[0]}", *mode[1:])), kept)

    def test_tied_embeddings_are_reduced_before_they_are_divided(self):
        for layout in (self.LAYOUT, ("parallel.pp=1", "parallel.dp=2")):
            tied = (*layout, "model.tied=true")
            whole = self.reference(*tied)
            for zero in (1, 3):
                for reduce in ("step", "microbatch"):
                    with self.subTest(layout=layout, zero=zero, reduce=reduce):
                        sharded = self.train(self.plan(*tied, f"parallel.zero={zero}", f"parallel.reduce={reduce}"))
                        if reduce == "step":
                            self.assert_same(sharded, whole)
                        else:
                            self.assert_close(sharded, whole, 1e-6)

    def test_bf16_shards_have_the_same_bits(self):
        layout = (*self.LAYOUT, "precision.compute=bf16")
        whole = self.reference(*layout)
        for zero in (1, 2, 3):
            with self.subTest(zero=zero):
                self.assert_same(self.train(self.plan(*layout, f"parallel.zero={zero}"), "--poison"), whole)

    @unittest.skipUnless(HAVE_MPI, "no mpirun")
    def test_threads_and_processes_have_the_same_bits(self):
        plan = self.plan(*self.LAYOUT, "parallel.zero=3", "parallel.reduce=microbatch", "memory.recompute=selective")
        self.assert_same(self.train(plan, "--backend", "mpi"), self.train(plan))

    def test_a_checkpoint_does_not_depend_on_the_shards(self):
        """Saved by one layout, resumed by another: optimizer shards are divided anew."""
        for first, second in ((("parallel.dp=2", "parallel.zero=3"), ("parallel.pp=2", "parallel.zero=0")),
                              (("parallel.pp=2",), ("parallel.dp=4", "parallel.zero=2"))):
            save, metrics = self.fresh(".save"), self.fresh(".jsonl")
            steady = "optimizer.decay=constant"  # the rate of a step does not depend on the number of steps
            self.train(self.plan(*first, steady), "--steps", "2", save=save, metrics=metrics)
            with self.subTest(first=first, second=second):
                resumed = self.train(self.plan(*second, steady), "--resume", save, save=save, metrics=metrics)
                self.assertEqual(resumed.steps, [1, 2, 3, 4])
                self.assert_close(resumed, self.reference("parallel.pp=1", steady), 1e-6)


if __name__ == "__main__":
    unittest.main()
