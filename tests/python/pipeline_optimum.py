"""The least stage span of a pipeline with a split backward under a memory cap, exactly: a constraint program.

Microbatches ascend in every kind of operation of a stage. That excludes nothing: they are alike, so giving the k-th
start of a stage's operations of one kind to the k-th microbatch keeps every dependence (what precedes the k-th start of
a stage contains k starts of the stage before it) and the memory, which counts operations only.
"""
from dataclasses import dataclass

from ortools.sat.python import cp_model

KINDS = "FIW"


@dataclass(frozen=True)
class Pipeline:
    """Sizes, times in one unit, and memory in another: `memory` is the change when F starts, I ends, W ends."""
    ranks: int
    microbatches: int
    times: tuple = (1, 1, 1)
    transfer: int = 0
    memory: tuple = (1, 0, -1)
    cap: int = 1
    shape: str = "loop"  # "v": two stages a rank, down the ranks and back up

    def stages(self):
        return self.ranks * (2 if self.shape == "v" else 1)

    def rank(self, stage):
        return stage if stage < self.ranks else 2 * self.ranks - 1 - stage

    def stages_of(self, rank):
        return [s for s in range(self.stages()) if self.rank(s) == rank]

    def delay(self, stage):
        """From a stage to the next, either way."""
        return self.transfer if self.rank(stage) != self.rank(stage + 1) else 0


def constraint_program(pipeline):
    model = cp_model.CpModel()
    time = dict(zip(KINDS, pipeline.times))
    m = pipeline.microbatches
    work = m * sum(pipeline.times) * len(pipeline.stages_of(0))
    horizon = 2 * (work + 2 * pipeline.stages() * (sum(pipeline.times) + pipeline.transfer))
    span = model.new_int_var(work, horizon, "span")
    start = {(k, s, i): model.new_int_var(0, horizon, f"{s}{k}{i}")
             for k in KINDS for s in range(pipeline.stages()) for i in range(m)}
    end = {key: variable + time[key[0]] for key, variable in start.items()}

    for (k, s, i), variable in start.items():
        if i > 0:
            model.add(variable >= end[k, s, i - 1])
        if k == "F" and s > 0:
            model.add(variable >= end["F", s - 1, i] + pipeline.delay(s - 1))
        if k == "I":
            model.add(variable >= end["F", s, i])
            if s + 1 < pipeline.stages():
                model.add(variable >= end["I", s + 1, i] + pipeline.delay(s))
        if k == "W":
            model.add(variable >= end["I", s, i])

    for rank in range(pipeline.ranks):
        stages = pipeline.stages_of(rank)
        model.add_no_overlap([model.new_fixed_size_interval_var(variable, time[k], "")
                              for (k, s, _), variable in start.items() if s in stages])
        # A forward's memory is held until its I, the rest until its W.
        held, amounts = [], []
        for last, amount in (("I", -pipeline.memory[1]), ("W", -pipeline.memory[2])):
            assert amount >= 0
            for s in stages if amount else []:
                for i in range(m):
                    size = model.new_int_var(0, horizon, "")
                    held.append(model.new_interval_var(start["F", s, i], size, end[last, s, i], ""))
                    amounts.append(amount)
        model.add_cumulative(held, amounts, pipeline.cap)
        for s in stages:
            model.add(span >= end["W", s, m - 1] - start["F", stages[0], 0])
    model.add(start["F", 0, 0] == 0)
    model.minimize(span)
    return model


def least_span(pipeline, seconds=120):
    """The optimum; an exception where it is not proved within that time."""
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 4
    solver.parameters.max_time_in_seconds = seconds
    status = solver.solve(constraint_program(pipeline))
    if status != cp_model.OPTIMAL:
        raise RuntimeError(f"{pipeline}: {solver.status_name(status)} after {seconds} s, "
                           f"span {solver.objective_value}, bound {solver.best_objective_bound}")
    return round(solver.objective_value)
