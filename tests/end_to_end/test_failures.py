"""A rank that dies or stalls ends every rank within the timeout, with a message that says where."""
import os
import signal
import subprocess
import time
import unittest
from pathlib import Path

from harness import HAVE_MPI, EndToEnd

PLACE = r"rank \d+ .*step \d+, \w+"  # who, when, in which action


def ranks_of(parent):
    """The femrun processes below mpirun by rank, from /proc."""
    ranks = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            environment = (entry / "environ").read_bytes().split(b"\0")
            name = (entry / "comm").read_text().strip()
            status = (entry / "status").read_text()
        except OSError:
            continue
        values = dict(item.split(b"=", 1) for item in environment if b"=" in item)
        if name == "femrun" and f"PPid:\t{parent}\n" in status and b"OMPI_COMM_WORLD_RANK" in values:
            ranks[int(values[b"OMPI_COMM_WORLD_RANK"])] = int(entry.name)
    return ranks


@unittest.skipUnless(HAVE_MPI, "no mpirun")
class Failures(EndToEnd):
    def running(self, timeout):
        """femrun under mpirun on four ranks, some steps into a long run: (process, pids by rank)."""
        metrics = self.fresh(".jsonl")
        process = self.start(self.plan("parallel.pp=2", "parallel.dp=2"), "--backend", "mpi", "--steps", "100000",
                             "--set", "run.eval_interval=0", "--timeout", str(timeout), "--metrics", metrics)
        self.wait_for_steps(process, metrics, 3)
        ranks = ranks_of(process.pid)
        self.assertEqual(sorted(ranks), [0, 1, 2, 3])
        return process, ranks

    def ends(self, process, ranks, within):
        start = time.monotonic()
        try:
            out, err = process.communicate(timeout=within)
        except subprocess.TimeoutExpired:
            process.kill()
            self.fail(f"still running after {within} s")
        print(f"ended after {time.monotonic() - start:.1f} s, exit code {process.returncode}\n{err}")
        self.assertNotEqual(process.returncode, 0)
        for pid in ranks.values():
            self.assertFalse(os.path.exists(f"/proc/{pid}"), "a rank is left")
        return out + err

    def test_a_killed_rank(self):
        process, ranks = self.running(timeout=20)
        os.kill(ranks[2], signal.SIGKILL)
        text = self.ends(process, ranks, within=20)
        self.assertRegex(text, PLACE)
        self.assertRegex(text, "rank 2")

    def test_a_stalled_rank(self):
        process, ranks = self.running(timeout=2)
        os.kill(ranks[1], signal.SIGSTOP)
        text = self.ends(process, ranks, within=20)
        self.assertRegex(text, PLACE)
        self.assertRegex(text, "no answer for 2 s")
        self.assertRegex(text, "rank 1")


if __name__ == "__main__":
    unittest.main()
