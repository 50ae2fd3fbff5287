"""Where the stages lie must not change what is learned: two directions with replicas, V, and one stage a rank."""
import unittest

import numpy as np

from harness import HAVE_MPI, EndToEnd

# Two replicas add two sums over half of the microbatches where 1F1B has one sum: other rounding, no more.
CLOSE = 1e-6

# pp, dp, batch.global: dualpipe needs at least 2 pp microbatches.
MESHES = ((2, 1, 8), (4, 1, 8), (2, 2, 8), (4, 2, 16))


def masters(trained):
    return {name: np.frombuffer(data, dtype="<f4") for name, data in trained.tensors.items()
            if name.endswith(".master")}


class Placements(EndToEnd):
    def mesh(self, schedule, pp, dp=1, batch=8, tied=False, *more):
        return self.plan(f"schedule.name={schedule}", f"parallel.pp={pp}", f"parallel.dp={dp}",
                         f"batch.global={batch}", f"model.tied={str(tied).lower()}", *more)

    def assert_near(self, a, b):
        """Losses at every step, evaluations, and every weight tensor at the end, by norm."""
        self.assertEqual(a.steps, b.steps)
        self.assert_close(a, b, CLOSE)
        self.assertEqual([step for step, _ in a.evals], [step for step, _ in b.evals])
        np.testing.assert_allclose([loss for _, loss in a.evals], [loss for _, loss in b.evals], rtol=CLOSE)
        ours, theirs = masters(a), masters(b)
        self.assertEqual(ours.keys(), theirs.keys())
        self.assertGreater(len(ours), 0)
        for name, values in ours.items():
            error = np.linalg.norm(values - theirs[name]) / np.linalg.norm(theirs[name])
            self.assertLessEqual(error, CLOSE, name)

    def test_two_directions_agree_with_one(self):
        for pp, dp, batch in MESHES:
            for tied in (False, True):
                one = self.train(self.mesh("1f1b", pp, dp, batch, tied))
                for schedule in ("dualpipe", "chimera"):
                    with self.subTest(schedule=schedule, pp=pp, dp=dp, tied=tied):
                        two = self.train(self.mesh(schedule, pp, dp, batch, tied))
                        self.assert_near(two, one)

    def test_more_microbatches_in_two_directions(self):
        one = self.train(self.mesh("1f1b", 4, 1, 24))
        for schedule in ("dualpipe", "chimera"):
            with self.subTest(schedule=schedule):
                self.assert_near(self.train(self.mesh(schedule, 4, 1, 24)), one)

    def test_runs_in_two_directions_repeat_their_bits(self):
        plan = self.mesh("dualpipe", 2, 2, 8, True)
        self.assert_same(self.train(plan), self.train(plan))

    @unittest.skipUnless(HAVE_MPI, "no mpirun")
    def test_threads_and_processes_have_the_same_bits(self):
        for schedule, pp, dp in (("dualpipe", 2, 2), ("chimera", 4, 1), ("zb_v", 2, 1)):
            plan = self.mesh(schedule, pp, dp, 8, True)
            with self.subTest(schedule=schedule):
                self.assert_same(self.train(plan, "--backend", "mpi"), self.train(plan))

    def test_a_checkpoint_holds_each_parameter_once_and_fills_both_replicas(self):
        for tied in (False, True):
            one, two = self.mesh("1f1b", 4, 1, 8, tied), self.mesh("dualpipe", 4, 1, 8, tied)
            whole = self.train(one)
            for first, second in ((two, one), (one, two), (two, two)):
                save, metrics = self.fresh(".save"), self.fresh(".jsonl")
                self.train(first, "--steps", "2", save=save, metrics=metrics)
                again = self.train(second, "--resume", save, save=save, metrics=metrics)
                self.assert_near_from_two_parts(again, whole)

    def assert_near_from_two_parts(self, again, whole):
        self.assertEqual(again.steps, whole.steps)
        self.assertEqual(again.rates, whole.rates)
        self.assert_close(again, whole, CLOSE)
        self.assertEqual(again.tensors.keys(), whole.tensors.keys())

    def test_resuming_in_two_directions_has_the_bits_of_going_on(self):
        plan = self.mesh("dualpipe", 2, 1, 8, True, "run.eval_interval=0")
        whole = self.train(plan)
        save, metrics = self.fresh(".save"), self.fresh(".jsonl")
        self.train(plan, "--steps", "2", save=save, metrics=metrics)
        again = self.train(plan, "--resume", save, save=save, metrics=metrics)
        self.assertEqual((again.losses, again.norms), (whole.losses, whole.norms))
        self.assertEqual(again.tensors, whole.tensors)

    def test_tied_copies_on_one_rank_have_the_bits_of_two_ranks(self):
        """Under V the first rank holds embedding and head and adds the same two sums in the same order."""
        for pp, layers in ((2, 4), (4, 8)):  # a block for each of the 2 pp stages
            sizes = (pp, 1, 8, True, f"model.layers={layers}")
            loop = self.train(self.mesh("1f1b", *sizes))
            for schedule in ("zb_v", "v_half", "v_min", "dualpipe_v"):
                with self.subTest(schedule=schedule, pp=pp):
                    self.assert_same(self.train(self.mesh(schedule, *sizes)), loop)

    def test_split_backwards_count_a_shared_weight_once(self):
        """B and W apart, with tied weights: the bits of whole backwards in the same order."""
        for pp in (1, 2, 4):
            whole = self.train(self.mesh("1f1b", pp, tied=True))
            for schedule in ("zb_h1", "zb_h2", "zb_1p", "zb_2p"):
                with self.subTest(schedule=schedule, pp=pp):
                    self.assert_same(self.train(self.mesh(schedule, pp, tied=True)), whole)


if __name__ == "__main__":
    unittest.main()
