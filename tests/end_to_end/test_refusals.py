"""What femrun refuses before any work, with which exit code and words."""
import os
import subprocess
import unittest
from unittest import mock

from harness import BIN, HAVE_MPI, EndToEnd


class Refusals(EndToEnd):
    def refused(self, plan, *options, code, words):
        save, metrics = self.fresh(".save"), self.fresh(".jsonl")
        done = self.femrun(plan, "--save", save, "--metrics", metrics, *options)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)
        self.assertEqual(done.stdout, "", "work was done")
        self.assertFalse(save.exists() or metrics.exists(), "work was done")
        return done.stderr

    def broken_plan(self):
        """A plan without one send: its receiver would wait for ever."""
        lines = self.plan("parallel.pp=2").read_text().splitlines(keepends=True)
        lines.remove(next(line for line in lines if line.strip() == "SendForward s0 m0 to 1"))
        plan = self.fresh(".plan")
        plan.write_text("".join(lines))
        return plan

    def test_a_plan_that_does_not_verify(self):
        plan = self.broken_plan()
        message = self.refused(plan, code=1, words=[f"{plan}:", ": error: ", "[V"])
        self.assertIn("^", message)

    @unittest.skipUnless(HAVE_MPI, "no mpirun")
    def test_a_plan_that_does_not_verify_under_mpi(self):
        self.refused(self.broken_plan(), "--backend", "mpi", code=1, words=[": error: ", "[V"])

    @unittest.skipUnless(HAVE_MPI, "no mpirun")
    def test_a_plan_that_does_not_verify_under_an_mpirun_of_the_user(self):
        done = self.mpirun(2, self.broken_plan())
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertEqual(done.stderr.count("[V14]"), 1, "rank 0 alone verifies and speaks\n" + done.stderr)
        self.assertEqual(done.stdout, "")

    @unittest.skipUnless(HAVE_MPI, "no mpirun")
    def test_ranks_with_different_plans(self):
        one, other = self.plan("parallel.pp=2"), self.plan("parallel.pp=2", "optimizer.beta1=0.8")
        choose = self.fresh(".sh")
        which = f'$([ "$OMPI_COMM_WORLD_RANK" = 1 ] && echo {other} || echo {one})'
        choose.write_text(f"exec {BIN.absolute()}/femrun {which}\n")
        done = subprocess.run(["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", "bash", choose],
                              capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("rank 1 has another plan, or other settings, than rank 0", done.stderr)
        self.assertEqual(done.stdout, "")

    def test_a_plan_with_a_typing_error(self):
        plan = self.fresh(".plan")
        plan.write_text(self.plan().read_text().replace("OptimizerStep s0", "OptimiserStep s0"))
        self.refused(plan, code=1, words=[f"{plan}:", "OptimizerStep"])

    def test_files_that_are_not_there(self):
        plan = self.plan()
        self.refused(self.folder / "absent.plan", code=1, words=["absent.plan"])
        self.refused(plan, "--data", self.folder / "absent", code=1, words=["absent"])
        self.refused(plan, "--init", self.folder / "absent", code=1, words=["absent"])
        self.refused(plan, "--resume", self.folder / "absent", code=1, words=["absent"])

    def test_places_where_nothing_can_be_written(self):
        plan, file = self.plan(), self.folder / "a file"
        file.write_text("")
        for option in ("--save", "--metrics", "--memory", "--dump-batches"):
            with self.subTest(option=option):
                done = self.femrun(plan, option, file / "below")
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn("a file", done.stderr)
                self.assertEqual(done.stdout, "", "work was done")

    def test_settings_of_the_plan(self):
        plan = self.plan()
        self.refused(plan, "--set", "parallel.pp=2", code=1,
                     words=["parallel.pp is part of the plan: compile again with femc plan CONFIG --set parallel.pp=2"])
        self.refused(plan, "--set", "run.step=2", code=1, words=["did you mean 'run.steps'?"])
        self.refused(plan, "--steps", "many", code=1, words=["run.steps", "many"])

    def test_usage(self):
        plan = self.plan()
        self.refused(plan, "--no-such-option", code=2, words=["--no-such-option"])
        self.refused(plan, "--backend", "smoke", code=2, words=["smoke"])
        self.refused(plan, "--init", "a", "--resume", "b", code=2, words=["--init"])
        done = self.femrun("--help")
        self.assertEqual(done.returncode, 0)
        self.assertIn("--dump-batches", done.stdout)

    @unittest.skipIf(os.path.exists("/dev/nvidia0"), "there is a GPU")
    def test_no_gpu(self):
        self.refused(self.plan(), "--device", "cuda", code=3, words=["no GPU"])
        self.refused(self.plan(), "--backend", "nccl", code=3, words=["no GPU"])

    def test_contradicting_launchers(self):
        with mock.patch.dict(os.environ, {"RANK": "0", "WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0",
                                          "OMPI_COMM_WORLD_SIZE": "4"}):
            self.refused(self.plan("parallel.pp=2"), code=1, words=["WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"])

    def test_local_ranks_inside_a_launcher(self):
        with mock.patch.dict(os.environ, {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}):
            self.refused(self.plan("parallel.pp=2"), "--backend", "local", code=1,
                         words=["OMPI_COMM_WORLD_SIZE=2", "--backend mpi"])

    def test_another_number_of_processes_than_the_plan_has_ranks(self):
        with mock.patch.dict(os.environ, {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "3"}):
            self.refused(self.plan("parallel.pp=2"), code=1, words=["OMPI_COMM_WORLD_SIZE=3", "2"])


if __name__ == "__main__":
    unittest.main()
