"""What must not depend on layout, schedule, backend or interruption, through the two binaries."""
import os
import signal
import unittest

from harness import HAVE_MPI, EndToEnd, Trained, end, ranks_of


class Layouts(EndToEnd):
    def test_bits_do_not_depend_on_pp(self):
        for tied in ("false", "true"):
            one = self.train(self.plan(f"model.tied={tied}"))
            self.assertEqual(one.steps, [1, 2, 3, 4])
            self.assertEqual([step for step, _ in one.evals], [2, 4])
            self.assertLess(one.losses[-1], one.losses[0] - 0.1)
            for pp in (2, 4):
                with self.subTest(pp=pp, tied=tied):
                    self.assert_same(self.train(self.plan(f"model.tied={tied}", f"parallel.pp={pp}")), one)

    def test_uneven_stages_have_the_same_bits(self):
        one = self.train(self.plan())
        uneven = self.train(self.plan("parallel.pp=3", "parallel.layers_per_stage=2,1,1"))
        self.assert_same(uneven, one)

    def test_bits_do_not_change_from_run_to_run(self):
        plan = self.plan("parallel.pp=2", "parallel.dp=2")
        self.assert_same(self.train(plan), self.train(plan))

    @unittest.skipUnless(HAVE_MPI, "no mpirun")
    def test_threads_and_processes_have_the_same_bits(self):
        for layout in (("parallel.pp=2", "parallel.dp=2"), ("parallel.pp=4", "model.tied=true")):
            plan = self.plan(*layout)
            with self.subTest(layout=layout):
                self.assert_same(self.train(plan, "--backend", "mpi"), self.train(plan))

    @unittest.skipUnless(HAVE_MPI, "no mpirun")
    def test_femrun_joins_an_mpirun_that_the_user_started(self):
        plan, save, metrics = self.plan("parallel.pp=2"), self.fresh(".save"), self.fresh(".jsonl")
        done = self.mpirun(2, plan, "--save", save, "--metrics", metrics)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stdout.count("step 4/4"), 1)  # one rank reports
        self.assertIn("2 ranks, backend mpi", done.stdout)
        self.assert_same(Trained(metrics, save), self.train(plan))

    def test_schedules_agree(self):
        reference = self.train(self.plan("parallel.pp=2"))
        gpipe = self.train(self.plan("parallel.pp=2", "schedule.name=gpipe"))
        self.assert_close(gpipe, reference, 1e-6)

    def test_schedules_of_equal_backward_order_have_the_same_bits(self):
        reference = self.train(self.plan("parallel.pp=2"))
        for name in ("interleaved_1f1b", "zb_h1", "zb_h2", "zb_1p", "zb_2p", "zb_v", "v_half", "v_min",
                     "interleaved_zb", "dualpipe_v"):
            with self.subTest(schedule=name):
                self.assert_same(self.train(self.plan("parallel.pp=2", f"schedule.name={name}")), reference)

    def test_weight_gradients_that_run_later_have_the_same_bits(self):
        for schedule in ("1f1b", "zb_h1", "dualpipe_v"):
            layout = ("parallel.pp=2", f"schedule.name={schedule}", "model.tied=" + str(schedule == "1f1b").lower())
            reference = self.train(self.plan(*layout))
            for distance in (1, 3):
                with self.subTest(schedule=schedule, distance=distance):
                    passes = f"defer_weights{{distance={distance}}},communication"
                    self.assert_same(self.train(self.plan(*layout, passes=passes)), reference)

    def test_replicas_agree(self):
        one = self.train(self.plan())
        for dp in (2, 4):
            with self.subTest(dp=dp):
                self.assert_close(self.train(self.plan(f"parallel.dp={dp}")), one, 1e-6)

    def test_microbatch_sizes_agree(self):
        singles = self.train(self.plan())
        for micro in (2, 4):
            with self.subTest(micro=micro):
                self.assert_close(self.train(self.plan(f"batch.micro={micro}")), singles, 3e-6)


class Interruption(EndToEnd):
    STEPS = ("--steps", "240", "--set", "run.eval_interval=0")

    def interrupted(self, plan, *options, victim=lambda process: process.pid):
        """Stops a run by SIGTERM to one process some steps after its start; gives its folder and metrics file."""
        save, metrics = self.fresh(".save"), self.fresh(".jsonl")
        process = self.start(plan, "--save", save, "--metrics", metrics, *self.STEPS, *options)
        try:
            self.wait_for_steps(process, metrics, 5)
            os.kill(victim(process), signal.SIGTERM)
            out, err = process.communicate(timeout=60)
        finally:
            end(process)
        self.assertEqual(process.returncode, 0, out + err)
        self.assertIn("stopping after step", out)
        steps = Trained(metrics, save).steps
        self.assertEqual(steps, list(range(1, len(steps) + 1)))
        self.assertLess(len(steps), 240, "the run was over before the signal")
        return save, metrics

    def resumed(self, plan, save, metrics, *options):
        return self.train(plan, *self.STEPS, "--resume", save, *options, save=save, metrics=metrics)

    def test_interrupted_and_resumed_equals_uninterrupted(self):
        whole = self.train(self.plan("parallel.pp=2"), *self.STEPS)
        save, metrics = self.interrupted(self.plan("parallel.pp=2"))
        again = self.resumed(self.plan("parallel.pp=4"), save, metrics)  # and in another layout
        self.assertEqual(again.steps, list(range(1, 241)))
        self.assertEqual(again.rates, whole.rates)
        self.assert_same(again, whole)

    @unittest.skipUnless(HAVE_MPI, "no mpirun")
    def test_processes_stop_when_femrun_or_one_of_them_is_asked(self):
        plan = self.plan("parallel.pp=2", "parallel.dp=2")
        whole = self.train(plan, *self.STEPS)
        for victim in (lambda process: process.pid, lambda process: ranks_of(process.pid)[3]):
            save, metrics = self.interrupted(plan, "--backend", "mpi", victim=victim)
            self.assert_same(self.resumed(plan, save, metrics), whole)


if __name__ == "__main__":
    unittest.main()
