"""ZeRO and recompute, through the two binaries: what is divided or computed again never changes a bit."""
import unittest

from harness import HAVE_MPI, EndToEnd


LANES = "overlap.lanes=true"


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

    def assert_everywhere(self, settings, expected):
        """Without lanes, with lanes as threads, and with lanes inline."""
        self.assert_same(self.train(self.plan(*settings), "--poison"), expected)
        laned = self.plan(*settings, LANES)
        self.assert_same(self.train(laned, "--poison"), expected)
        self.assert_same(self.train(laned, "--lanes", "inline", "--poison"), expected)

    def test_gathers_with_the_next_forward_have_the_same_bits(self):
        forward = "parallel.gather=forward"
        for precision, reduce in (("fp32", "step"), ("bf16", "microbatch")):
            layout = (*self.LAYOUT, f"precision.compute={precision}", f"parallel.reduce={reduce}")
            whole = self.reference(*layout)
            self.assertEqual(len(whole.evals), 2)  # evaluations gather for themselves
            for zero in (0, 1, 2, 3):
                with self.subTest(precision=precision, zero=zero):
                    self.assert_everywhere((*layout, f"parallel.zero={zero}", forward), whole)
        for schedule in ("zb_v", "dualpipe"):
            with self.subTest(schedule=schedule):
                layout = (*self.LAYOUT, f"schedule.name={schedule}", "memory.recompute=full")
                self.assert_everywhere((*layout, "parallel.zero=2", forward), self.reference(*layout))

    def test_a_run_that_gathers_with_the_forward_is_resumed(self):
        layout = (*self.LAYOUT, "parallel.zero=2", "parallel.gather=forward", "optimizer.decay=constant")
        save, metrics = self.fresh(".save"), self.fresh(".jsonl")
        self.train(self.plan(*layout), "--steps", "2", save=save, metrics=metrics)
        resumed = self.train(self.plan(*layout), "--resume", save, "--poison", save=save, metrics=metrics)
        self.assertEqual(resumed.steps, [1, 2, 3, 4])
        self.assert_same(resumed, self.train(self.plan(*layout)))

    def test_residents_have_the_same_bits(self):
        layout = (*self.LAYOUT, "parallel.zero=3")
        whole = self.reference(*self.LAYOUT)
        before = self.unshards(self.plan(*layout, LANES))
        for budget in ("80KiB", "1GiB"):
            for more in ((), ("memory.recompute=full", "overlap.prefetch=3"), ("overlap.prefetch=0",)):
                with self.subTest(budget=budget, more=more):
                    plan = self.plan(*layout, LANES, f"parallel.resident={budget}", *more)
                    # The second budget holds every unit: one gather of each a program.
                    self.assertLess(self.unshards(plan), before if budget == "80KiB" else before // 2)
                    self.assert_same(self.train(plan, "--poison"), whole)
                    self.assert_same(self.train(plan, "--lanes", "inline", "--poison"), whole)
        for schedule in ("interleaved_1f1b", "zb_v", "dualpipe"):
            with self.subTest(schedule=schedule):
                name = f"schedule.name={schedule}"
                plan = self.plan(*layout, LANES, name, "parallel.resident=80KiB")
                self.assert_same(self.train(plan, "--poison"), self.reference(*self.LAYOUT, name))

    def test_residents_need_lanes(self):
        refused = self.femc_plan(*self.LAYOUT, "parallel.zero=3", "parallel.resident=1GiB")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("parallel.resident = 1GiB needs overlap.lanes = true", refused.stderr)

    def unshards(self, plan):
        return plan.read_text().count(" Unshard ")

    def test_shard_groups_have_the_same_bits_at_every_stage(self):
        """Sums run over the group first and then over its replicas: another rounding than over all at once."""
        for reduce in ("step", "microbatch"):
            layout = ("parallel.dp=4", f"parallel.reduce={reduce}", "precision.compute=bf16")
            plain = self.reference(*layout, "parallel.zero=2")
            grouped = self.reference(*layout, "parallel.zero=1", "parallel.shard=2")
            self.assert_close(grouped, plain, 1e-2)
            for zero in (2, 3):
                with self.subTest(zero=zero, reduce=reduce):
                    self.assert_everywhere((*layout, f"parallel.zero={zero}", "parallel.shard=2"), grouped)
            with self.subTest("one group", reduce=reduce):
                self.assert_everywhere((*layout, "parallel.zero=3", "parallel.shard=4"), plain)

    def test_shard_groups_go_with_the_rest(self):
        layout = ("parallel.pp=2", "parallel.dp=4", "model.tied=true", "batch.global=16", "parallel.shard=2")
        for schedule in ("zb_v", "dualpipe"):
            expected = self.reference(*layout, f"schedule.name={schedule}", "parallel.zero=1")
            for more in (("parallel.zero=2", "parallel.gather=forward"), ("parallel.zero=3", "memory.recompute=full")):
                with self.subTest(schedule=schedule, more=more):
                    self.assert_everywhere((*layout, f"schedule.name={schedule}", *more), expected)
        with self.subTest("close to one replica"):
            alone = self.reference("model.tied=true", "batch.global=16")
            self.assert_close(self.reference(*layout, "parallel.zero=2"), alone, 1e-5)

    def test_shard_groups_divide_the_replicas(self):
        refused = self.femc_plan("parallel.dp=4", "parallel.zero=1", "parallel.shard=3")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("parallel.dp * parallel.cp=4 is not a multiple of parallel.shard=3; nearest: 2 or 4",
                      refused.stderr)

    def test_buckets_have_the_bits_of_one_reduction_a_step(self):
        for layout in (self.LAYOUT, ("parallel.dp=4", "schedule.name=gpipe"), (*self.LAYOUT, "schedule.name=zb_h1")):
            for tied in ("false", "true"):
                whole = self.reference(*layout, f"model.tied={tied}")
                for zero, size in ((0, "20KiB"), (2, ""), (3, "60KiB")):
                    with self.subTest(layout=layout, tied=tied, zero=zero):
                        settings = ("parallel.reduce=bucket", f"parallel.bucket={size}", f"parallel.zero={zero}")
                        self.assert_everywhere((*layout, f"model.tied={tied}", *settings), whole)

    def test_every_schedule_can_be_sharded(self):
        for name in ("gpipe", "interleaved_1f1b", "zb_h1", "zb_v", "dualpipe_v", "dualpipe"):
            layout = (*self.LAYOUT, f"schedule.name={name}")
            whole = self.reference(*layout)
            with self.subTest(schedule=name):
                sharded = self.plan(*layout, "parallel.zero=3", "memory.recompute=full")
                self.assert_same(self.train(sharded, "--poison"), whole)

    def test_two_directions_reduce_once_a_step(self):
        for reduce in ("microbatch", "bucket"):
            refused = self.femc_plan(*self.LAYOUT, "schedule.name=dualpipe", f"parallel.reduce={reduce}")
            self.assertEqual(refused.returncode, 1)
            self.assertIn(f"parallel.reduce={reduce} with a schedule of two directions", refused.stderr)

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
        for layout in ((*self.LAYOUT, "parallel.zero=2", "parallel.gather=forward", "parallel.reduce=bucket"),
                       (*self.LAYOUT, "parallel.zero=3", "parallel.resident=80KiB"),
                       ("parallel.dp=4", "parallel.zero=3", "parallel.shard=2")):
            with self.subTest(layout=layout):
                plan = self.plan(*layout, LANES)
                self.assert_same(self.train(plan, "--backend", "mpi"), self.train(plan))

    def test_a_checkpoint_does_not_depend_on_the_shards(self):
        """Saved by one layout, resumed by another: optimizer shards are divided anew."""
        for first, second in ((("parallel.dp=2", "parallel.zero=3"), ("parallel.pp=2", "parallel.zero=0")),
                              (("parallel.pp=2",), ("parallel.dp=4", "parallel.zero=2")),
                              (("parallel.dp=4", "parallel.zero=3", "parallel.shard=2"), ("parallel.pp=2",)),
                              (("parallel.dp=2", "parallel.zero=2"),
                               ("parallel.dp=4", "parallel.zero=1", "parallel.shard=2"))):
            save, metrics = self.fresh(".save"), self.fresh(".jsonl")
            steady = "optimizer.decay=constant"  # the rate of a step does not depend on the number of steps
            self.train(self.plan(*first, steady), "--steps", "2", save=save, metrics=metrics)
            with self.subTest(first=first, second=second):
                resumed = self.train(self.plan(*second, steady), "--resume", save, save=save, metrics=metrics)
                self.assertEqual(resumed.steps, [1, 2, 3, 4])
                self.assert_close(resumed, self.reference("parallel.pp=1", steady), 1e-6)

    def test_a_release_by_hand_spares_the_masters(self):
        gather = "  Unshard s0 over dp_cp\n"
        for compute in ("fp32", "bf16"):
            plan = self.plan("parallel.dp=2", "parallel.zero=1", f"precision.compute={compute}")
            text = plan.read_text()
            self.assertEqual(text.count(gather), 1)
            by_hand = self.fresh(".plan")
            by_hand.write_text(text.replace(gather, gather + "  Reshard s0\n" + gather))
            self.assert_same(self.train(by_hand, "--poison"), self.train(plan))


if __name__ == "__main__":
    unittest.main()
