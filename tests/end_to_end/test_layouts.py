"""What must not depend on layout, schedule, backend or interruption, through the two binaries."""
import signal
import unittest

from harness import HAVE_MPI, EndToEnd, Trained


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

    def test_schedules_agree(self):
        reference = self.train(self.plan("parallel.pp=2"))
        gpipe = self.train(self.plan("parallel.pp=2", "schedule.name=gpipe"))
        self.assert_close(gpipe, reference, 1e-6)

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
    def interrupted_and_resumed(self, first, options, rest):
        """Stops a run by SIGTERM, goes on with another plan, and gives all metrics and the last checkpoint."""
        save, metrics = self.fresh(".save"), self.fresh(".jsonl")
        run = ("--save", save, "--metrics", metrics, "--steps", "60", *options)
        process = self.start(first, *run)
        self.wait_for_steps(process, metrics, 5)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, out + err)
        self.assertIn("stopping after step", out)
        stopped = Trained(metrics, save)
        self.assertGreaterEqual(len(stopped.steps), 5)
        self.assertLess(len(stopped.steps), 60, "the run was over before the signal")
        done = self.femrun(rest, "--save", save, "--metrics", metrics, "--steps", "60", "--resume", save)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return Trained(metrics, save)

    def test_interrupted_and_resumed_equals_uninterrupted(self):
        plan = self.plan("parallel.pp=2")
        whole = self.train(plan, "--steps", "60", "--set", "run.eval_interval=0")
        again = self.interrupted_and_resumed(plan, ("--set", "run.eval_interval=0"),
                                             self.plan("parallel.pp=4", "run.eval_interval=0"))
        self.assertEqual(again.steps, list(range(1, 61)))
        self.assertEqual(again.rates, whole.rates)
        self.assert_same(again, whole)


if __name__ == "__main__":
    unittest.main()
