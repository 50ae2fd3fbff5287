"""Schedule files across to PyTorch and back: its own loader, validator, simulator and generated schedules."""
import csv
import os
import re
import subprocess
import tempfile
import types
import unittest
from pathlib import Path

from torch.distributed.pipelining import schedules as torch_schedules

FEMC = Path(os.environ["FEM_BIN"]) / "femc"
SCHEDULES = Path(os.environ["FEM_SOURCE"]) / "schedules"
LAYERS = 32
SIZES = [(2, 4), (3, 6), (4, 8), (4, 12), (1, 3)]  # pipeline ranks, microbatches
GENERATED = {  # stages on each rank
    "GPipe": 1, "1F1B": 1, "LoopedBFS": 2, "Interleaved1F1B": 2, "InterleavedZeroBubble": 2, "ZBVZeroBubble": 2,
    "DualPipeV": 2,
}
TWO_RANKS = ("0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
             "1RECV_F0,1RECV_F1,1F0,1B0,1SEND_B0,1F1,1B1,1SEND_B1\n")


def torch_stages(p, stages, local):
    return [types.SimpleNamespace(num_stages=stages, group_size=p, group_rank=0, stage_index=index, submod=None,
                                  is_first=index == 0, is_last=index == stages - 1) for index in local]


def torch_runtime(p, stages, m):
    return torch_schedules._PipelineScheduleRuntime(torch_stages(p, stages, [0]), m, loss_fn=lambda *_: None)


def torch_generated(name, p, m):
    """The order of one of PyTorch's own schedules, and the schedule where it is one that knows communication."""
    made = torch_schedules.get_schedule_class(name)
    stages = p * GENERATED[name]
    if issubclass(made, torch_schedules.PipelineScheduleSingle):
        return made(torch_stages(p, stages, [0])[0], m, loss_fn=lambda *_: None).pipeline_order, None
    local = [0, stages - 1] if name in ("ZBVZeroBubble", "DualPipeV") else range(0, stages, p)
    schedule = made(torch_stages(p, stages, local), m, loss_fn=lambda *_: None)
    return schedule.pipeline_order, schedule


def simulated_steps(runtime):
    """PyTorch's simulator knows neither REDUCE_GRAD, UNSHARD and RESHARD nor pairs; None where there are pairs."""
    unknown = {torch_schedules.REDUCE_GRAD, torch_schedules.UNSHARD, torch_schedules.RESHARD}
    order, pairs = {}, False
    for rank, actions in runtime.pipeline_order_with_comms.items():
        order[rank] = []
        for action in actions:
            pairs |= action.sub_actions is not None
            order[rank] += [a for a in action.sub_actions or (action,) if a.computation_type not in unknown]
    run = torch_schedules._simulate_comms_compute(order, lambda s: runtime.stage_index_to_group_rank[s],
                                                  runtime._num_stages)
    return None if pairs else max(len(actions) for actions in run.values())


def rows(order):
    return [[str(action) for action in order[rank] if action is not None] for rank in sorted(order)]


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return str(Path(self.folder.name) / name)

    def write(self, name, text):
        Path(self.path(name)).write_text(text)
        return self.path(name)

    def femc(self, *arguments, code=0):
        done = subprocess.run([str(FEMC), *arguments], capture_output=True, text=True, timeout=60)
        if code is not None:
            self.assertEqual(done.returncode, code, (arguments, done.stdout, done.stderr))
        return done

    def config(self, p, m, schedule="1f1b"):
        return self.write("run.yaml", f"model: {{layers: {LAYERS}, hidden: 64, intermediate: 128, heads: 4, "
                                      f"vocab: 256}}\nparallel: {{pp: {p}}}\nschedule: {{name: {schedule}}}\n"
                                      f"batch: {{global: {m}, seq_len: 16}}\n")

    def steps(self, file):
        said = self.femc("import", file, "--format", "torch", "--check").stdout
        return int(re.search(r"(\d+) unit steps", said)[1])

    def assert_same_programs(self, a, b):
        said = self.femc("diff", a, b).stdout
        self.assertNotRegex(said, r"(?m)^(program|layout)")
        self.assertEqual([line for line in said.splitlines()[3:] if not line.startswith("  schedule.")], [])


class Export(Folder):
    def check_export(self, plan, config, p, m):
        """Both files of a plan through PyTorch and back."""
        compute, full, back = self.path("compute.csv"), self.path("full.csv"), self.path("back.plan")
        self.femc("export", plan, "--format", "torch", "--compute-only", "-o", compute)
        self.femc("export", plan, "--format", "torch", "-o", full)
        stages = 1 + max(int(text) for text in re.findall(r"(\d+)F", Path(compute).read_text()))
        alone, runtime = torch_runtime(p, stages, m), torch_runtime(p, stages, m)
        alone._load_csv(compute, format="compute_only")
        runtime._load_csv(full, format="compute_comms")
        # What PyTorch read is what was written: none of its cells was cut short.
        for file, order in ((compute, alone.pipeline_order), (full, runtime.pipeline_order_with_comms)):
            with open(file, newline="") as text:
                self.assertEqual(rows(order), list(csv.reader(text)))
        steps = simulated_steps(runtime)
        if steps is not None:
            self.assertEqual(self.steps(full), steps)
        for file in (compute, full):
            self.femc("import", file, "--format", "torch", "--config", config, "-o", back)
            self.assert_same_programs(plan, back)
        if p > 1:
            self.femc("import", full, "--format", "torch", "--config", config, "--keep-communication", "-o", back)
            self.assertEqual(self.femc("export", back, "--format", "torch").stdout, Path(full).read_text())

    def test_every_schedule(self):
        for schedule in sorted(path.stem for path in SCHEDULES.glob("*.yaml")):
            plan, count, reasons = self.path("a.plan"), 0, []
            for p, m in SIZES:
                config = self.config(p, m, schedule)
                done = self.femc("plan", config, "-o", plan, code=None)
                if done.returncode == 1:  # the schedule has conditions on p and m
                    reasons.append(done.stderr)
                    continue
                self.assertEqual(done.returncode, 0, done.stderr)
                if "replica_of" in Path(plan).read_text():
                    said = self.femc("export", plan, "--format", "torch", code=1).stderr
                    self.assertIn("the format knows no schedules of two directions", said)
                else:
                    with self.subTest(schedule=schedule, p=p, m=m):
                        self.check_export(plan, config, p, m)
                count += 1
            self.assertTrue(count, (schedule, reasons))

    def test_the_small_file_takes_eleven_steps(self):
        file = self.write("two.csv", TWO_RANKS)
        runtime = torch_runtime(2, 2, 2)
        runtime._load_csv(file, format="compute_comms")
        self.assertEqual(simulated_steps(runtime), 11)
        self.assertEqual(self.steps(file), 11)


class Import(Folder):
    def check_import(self, file, order, p, m):
        """The plan of a generated file runs the same operations on each rank, in the file's order."""
        plan = self.path("b.plan")
        self.femc("import", file, "--format", "torch", "--config", self.config(p, m), "-o", plan)
        self.femc("check", plan)
        said = self.femc("export", plan, "--format", "torch", "--compute-only").stdout
        passes = [[cell for cell in row if not re.search("[A-Z]{4}_|[A-Z]{5}", cell) or "OVERLAP" in cell]
                  for row in rows(order)]
        self.assertEqual(list(csv.reader(said.splitlines())), passes)

    def test_generated_schedules(self):
        for name in GENERATED:
            for p, m in ((2, 4), (4, 8), (4, 12)):
                with self.subTest(name=name, p=p, m=m):
                    order, schedule = torch_generated(name, p, m)
                    file = self.path("torch.csv")
                    with open(file, "w", newline="") as text:  # as _dump_csv does
                        csv.writer(text).writerows(order[rank] for rank in order)
                    if name == "1F1B":
                        said = self.femc("import", file, "--format", "torch", "--check", code=1).stderr
                        self.assertIn(f"row {p} (rank {p - 1}), cell 1 '{p - 1}F1'", said)
                        self.assertIn("its forwards are shifted by one", said)
                        order[p - 1] = [action._replace(microbatch_index=action.microbatch_index - 1)
                                        if action.computation_type == torch_schedules.FORWARD else action
                                        for action in order[p - 1]]
                        with open(file, "w", newline="") as text:
                            csv.writer(text).writerows(order[rank] for rank in order)
                    self.check_import(file, order, p, m)
                    if schedule is None:
                        continue
                    schedule._dump_csv(file, format="compute_comms")
                    self.check_import(file, order, p, m)
                    steps = simulated_steps(schedule)
                    if steps is not None:
                        self.assertEqual(self.steps(file), steps)

    def test_the_linter_sees_what_the_validator_passes_over(self):
        for text, stages, m, said in (
                ("0F0,0F0,0B0\n", 1, 1, "stands a second time"),
                ("0F0,0F1,0B0,0B1\n1F0,1B0,1F7,1B7\n2F0,2F1,2B0,2B1\n", 3, 2, "microbatch 7 is out of range"),
                ("0F0,0F1,0F2,0I0,0W0,0B0,0B1\n", 1, 3, "runs backward twice"),
                ("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n", 2, 2, "wait for each other"),
                ("0F0junk,0B0\n", 1, 1, "has 'junk' behind the operation 0F0")):
            file = self.write("bad.csv", text)
            p = text.count("\n")
            runtime = torch_schedules.PipelineScheduleMulti.__new__(torch_schedules.PipelineScheduleMulti)
            runtime.pipeline_order, runtime._stages = {}, []
            runtime.pp_group_size, runtime._num_stages, runtime._n_microbatches = p, stages, m
            runtime._load_csv(file)
            self.assertIn(said, self.femc("import", file, "--format", "torch", "--check", code=1).stderr)

    def test_usage(self):
        file = self.write("two.csv", TWO_RANKS)
        self.femc("import", file, code=2)
        self.femc("import", file, "--format", "cvs", "--check", code=2)
        self.femc("import", file, "--format", "torch", code=2)
        self.femc("import", file, "--format", "torch", "--check", "--config", self.config(2, 2), code=2)
        self.femc("export", file, "--format", "torch", code=1)


if __name__ == "__main__":
    unittest.main()
