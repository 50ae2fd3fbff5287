"""femrun --device meta: what femc forecasts is what the interpreter takes under LibTorch's own operators, for any size;
and what it takes there is what a run on the CPU takes."""
import itertools
import json
import os
import subprocess
import sys
import unittest
import unittest.mock

from harness import BIN, SOURCE, STATE, TORCH_STATE, EndToEnd

SIZES = ("rank", "pp", "dp", *(f"{kind}_bytes" for kind in (*STATE, "blocks")))

# Runs a command and prints the most real memory that it held, in bytes: ru_maxrss counts KiB.
MEASURE = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
"""


class DryRun(EndToEnd):
    def dry(self, plan, *options):
        return self.measurement(plan, "--device", "meta", *options)

    def assert_foretold(self, rank, said, returned):
        """Equal bytes by kind. Beside them the allocator holds the constants that femc counts and, at the peak, what
        the backward of flash attention returns: `returned` elements, in bf16 or in fp32 as the CPU multiplies. femc's
        bound for what operators take covers those."""
        self.assert_state(rank, said)
        self.assertEqual(rank["blocks_bytes"], said["pool_bytes"])
        planned = sum(rank[f"{kind}_bytes"] for kind in (*TORCH_STATE, "blocks")) + said["constant_bytes"]
        operators = rank["allocator_peak_bytes"] - planned
        self.assertIn(operators, (2 * returned, 4 * returned))
        self.assertLessEqual(operators, said["hidden_bytes"])

    def check(self, *settings, micro):
        plan = self.plan("data.eval=", f"batch.micro={micro}", *settings)
        said, found = self.forecast(plan), self.dry(plan)
        self.assertEqual([rank["pp"] for rank in found], list(range(len(said))))
        for rank, expected in zip(found, said):
            with self.subTest(settings=settings, micro=micro, pp=rank["pp"]):
                self.assert_foretold(rank, expected, returned=3 * micro * 32 * 32)

    def test_the_forecast_is_what_the_interpreter_takes(self):
        schedules = ("1f1b", "gpipe", "interleaved_1f1b", "zb_h1", "zb_v", "dualpipe_v")
        cells = itertools.product(schedules, range(4), ("none", "selective", "full"))
        for i, (schedule, zero, recompute) in enumerate(cells):
            self.check("parallel.pp=2", "parallel.dp=2", "batch.global=16", f"schedule.name={schedule}",
                       f"parallel.zero={zero}", f"memory.recompute={recompute}",
                       f"precision.compute={('fp32', 'bf16')[i // 2 % 2]}",
                       f"parallel.reduce={('step', 'microbatch')[zero >= 2]}", micro=1 + i % 2)

    def test_tied_embeddings(self):
        for schedule in ("1f1b", "zb_v"):  # copies on two ranks, and on one
            self.check("parallel.pp=2", "parallel.dp=2", f"schedule.name={schedule}", "model.tied=true", micro=1)

    def test_lanes_in_an_arena(self):
        for schedule, zero in itertools.product(("1f1b", "zb_v"), range(4)):
            plan = self.plan("parallel.pp=2", "parallel.dp=2", f"schedule.name={schedule}", f"parallel.zero={zero}",
                             "overlap.lanes=true", f"parallel.reduce={('step', 'microbatch')[zero >= 2]}")
            train, evaluation, ran = self.forecast(plan), self.forecast(plan, "eval"), self.measurement(plan)
            for rank in self.dry(plan):
                with self.subTest(schedule=schedule, zero=zero, pp=rank["pp"]):
                    said = train[rank["pp"]]
                    arena = max(said["arena_bytes"], evaluation[rank["pp"]]["arena_bytes"])
                    self.assertEqual(rank["blocks_bytes"], arena)
                    for kind in STATE:
                        self.assertEqual(rank[f"{kind}_bytes"], said["persistent"][f"{kind}_bytes"], kind)
                    state = sum(said["persistent"][f"{kind}_bytes"] for kind in TORCH_STATE)
                    planned = state + arena + said["constant_bytes"]
                    self.assertGreater(rank["allocator_peak_bytes"], planned)
                    self.assertLessEqual(rank["allocator_peak_bytes"], planned + said["hidden_bytes"])
                    measured = next(r for r in ran if r["pp"] == rank["pp"] and r["dp"] == 0)
                    self.assertEqual([rank[size] for size in SIZES], [measured[size] for size in SIZES])

    def test_a_dry_run_takes_what_a_run_takes(self):
        for settings in ((), ("precision.compute=bf16", "parallel.zero=1"),
                         ("schedule.name=zb_v", "parallel.zero=3", "memory.recompute=full"),
                         ("schedule.name=dualpipe", "batch.global=16"), ("model.tied=true", "parallel.zero=2"),
                         ("data.eval=",)):
            plan = self.plan("parallel.pp=2", "parallel.dp=2", *settings)
            said = self.forecast(plan)
            ran = [rank for rank in self.measurement(plan) if rank["dp"] == 0]
            dry = self.dry(plan)
            with self.subTest(settings=settings):
                self.assertEqual([[rank[size] for size in SIZES] for rank in dry],
                                 [[rank[size] for size in SIZES] for rank in ran])
                self.assertEqual(list(dry[0]), list(ran[0]), "the same figures")
                # On Meta operators allocate what they return, on the CPU what they work in too.
                for a, b, expected in zip(dry, ran, said):
                    self.assertLessEqual(a["allocator_peak_bytes"], b["allocator_peak_bytes"])
                    self.assertLessEqual(b["allocator_peak_bytes"],
                                         a["allocator_peak_bytes"] + expected["hidden_bytes"])

    def test_70b_in_little_memory(self):
        config = SOURCE / "tests/bench/llama_70b.yaml"
        for zero in (1, 3):
            plan, report = self.fresh(".plan"), self.fresh(".json")
            subprocess.run([BIN / "femc", "plan", config, "-o", plan, "--set", f"parallel.zero={zero}"], check=True,
                           stdout=subprocess.DEVNULL)
            command = [BIN / "femrun", plan, "--device", "meta", "--memory", report]
            done = subprocess.run([sys.executable, "-c", MEASURE, *command], capture_output=True, text=True,
                                  timeout=120, check=True)
            self.assertLess(int(done.stdout.splitlines()[-1]), 500e6)
            found = json.loads(report.read_text())["ranks"]
            said = self.forecast(plan)
            self.assertEqual(len(found), 8)
            for rank, expected in zip(found, said):
                self.assert_foretold(rank, expected, returned=3 * 4096 * 8192)

    def test_one_rank(self):
        plan = self.plan("parallel.pp=2", "parallel.dp=2")
        self.assertEqual(self.dry(plan, "--rank", "1"), self.dry(plan)[1:])

    def test_the_table(self):
        done = self.femrun(self.plan("parallel.pp=2"), "--device", "meta")
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        self.assertEqual([line.split()[0] for line in lines], ["dry", "rank", "0", "1"])
        for word in (*STATE, "blocks", "peak"):
            self.assertIn(word, lines[1])
        self.assertRegex(lines[2], r"  (Forward|Backward) s0 m\d$")
        self.assertNotIn("(host)", lines[1])

    def test_the_table_keeps_host_memory_apart(self):
        kept, moved = ([line.split() for line in self.femrun(
            self.plan("parallel.pp=2", f"memory.offload={what}"), "--device", "meta").stdout.splitlines()]
            for what in ("none", "optimizer"))
        self.assertEqual(moved[1][10], "(host)")
        # "beside", a figure and its unit a column: what operators return, whatever is offloaded.
        self.assertEqual(moved[2][13:15], kept[2][13:15])

    def refused(self, *options, code, words):
        done = self.femrun(*options)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)

    def test_what_does_not_go_with_a_dry_run(self):
        plan = self.plan("parallel.pp=2")
        for option, value in (("--backend", "local"), ("--init", "x"), ("--resume", "x"), ("--save", "x"),
                              ("--metrics", "x"), ("--dump-batches", "x")):
            self.refused(plan, "--device", "meta", option, value, code=2, words=[option, "--device meta", "dry run"])
        self.refused(plan, "--device", "meta", "--poison", code=2, words=["--poison"])
        self.refused(plan, "--rank", "0", code=2, words=["--rank", "--device meta"])
        self.refused(plan, "--device", "meta", "--rank", "2", code=1, words=["no pipeline rank 2", "0 to 1"])
        self.refused(plan, "--device", "meta", "--memory", self.folder / "absent" / "file", code=1, words=["absent"])

    def test_under_a_launcher(self):
        plan = self.plan("parallel.pp=2")
        with unittest.mock.patch.dict(os.environ, {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}):
            self.refused(plan, "--device", "meta", code=1, words=["OMPI_COMM_WORLD_SIZE=2", "start femrun alone"])


if __name__ == "__main__":
    unittest.main()
