"""A rank that dies or stalls ends every rank within the timeout, with a message that says where."""
import os
import signal
import time
import unittest

from harness import HAVE_MPI, EndToEnd, end, ranks_of

PLACE = r"rank \d+ \(pp \d dp \d\).* step \d+, \w+"  # who, when, in which action


@unittest.skipUnless(HAVE_MPI, "no mpirun")
class Failures(EndToEnd):
    def text_after(self, number, rank, timeout, within):
        """What femrun says when a rank of a running job gets a signal; all ranks must be gone in time."""
        metrics = self.fresh(".jsonl")
        process = self.start(self.plan("parallel.pp=2", "parallel.dp=2"), "--backend", "mpi", "--steps", "100000",
                             "--set", "run.eval_interval=0", "--set", "run.log_interval=100000",
                             "--timeout", str(timeout), "--metrics", metrics)
        try:
            self.wait_for_steps(process, metrics, 3)
            ranks = ranks_of(process.pid)
            self.assertEqual(sorted(ranks), [0, 1, 2, 3])
            os.kill(ranks[rank], number)
            out, err = process.communicate(timeout=within)
            self.assertEqual(process.returncode, 3, out + err)
            end_of_wait = time.monotonic() + 5
            while any(os.path.exists(f"/proc/{pid}") for pid in ranks.values()):
                self.assertLess(time.monotonic(), end_of_wait, "a rank is left")
                time.sleep(0.1)
            return out + err
        finally:
            end(process)

    def test_a_killed_rank_ends_all_long_before_the_timeout(self):
        text = self.text_after(signal.SIGKILL, rank=2, timeout=60, within=30)
        self.assertRegex(text, PLACE)
        self.assertRegex(text, "rank 2 .*signal 9")

    def test_a_stalled_rank_ends_all_after_the_timeout(self):
        text = self.text_after(signal.SIGSTOP, rank=1, timeout=3, within=30)
        self.assertRegex(text, PLACE + r".*: no answer for 3 s")
        self.assertRegex(text, r"no answer for 3 s.*(rank 1|ranks \{[\d, ]*1[\d, ]*\})")


if __name__ == "__main__":
    unittest.main()
