"""Files that femrun reads and writes: dumped batches, checkpoints, exported weights."""
import json
import unittest

import numpy as np
from safetensors.numpy import load_file

from harness import EndToEnd, newest


class Files(EndToEnd):
    def test_dumped_batches_are_the_tokens_of_the_run(self):
        plan = self.plan("parallel.dp=2")
        file = self.fresh(".tokens")
        self.train(plan, "--dump-batches", file)
        batches = np.fromfile(file, dtype="<i8").reshape(4, 8, 33)  # steps, sequences, tokens and the last target
        corpus = np.fromfile(self.folder / "data/train.bin", dtype="<u2").astype(np.int64)
        windows = {tuple(corpus[i:i + 33]) for i in range(0, len(corpus) - 32, 32)}
        for sequence in batches.reshape(-1, 33):
            self.assertIn(tuple(sequence), windows)
        # Layout and process count do not change them.
        other = self.fresh(".tokens")
        self.train(self.plan("parallel.pp=2", "batch.micro=2"), "--dump-batches", other)
        self.assertEqual(other.read_bytes(), file.read_bytes())

    def test_a_checkpoint_is_a_hugging_face_llama(self):
        save = self.fresh(".save")
        self.train(self.plan("parallel.pp=2", "model.tied=true"), save=save)
        folder = newest(save)
        config = json.loads((folder / "config.json").read_text())
        self.assertEqual(config["model_type"], "llama")
        self.assertEqual((config["num_hidden_layers"], config["num_key_value_heads"]), (4, 2))
        self.assertEqual(config["tie_word_embeddings"], True)
        index = json.loads((folder / "model.safetensors.index.json").read_text())
        tensors = {}
        for file in set(index["weight_map"].values()):
            tensors.update(load_file(folder / file))
        self.assertEqual(sorted(tensors), sorted(index["weight_map"]))
        self.assertEqual(tensors["model.embed_tokens.weight"].shape, (257, 32))
        self.assertNotIn("lm_head.weight", tensors)  # the tied copies are stored once
        self.assertEqual(tensors["model.layers.3.mlp.down_proj.weight"].shape, (32, 64))

    def test_saved_weights_start_the_same_run_again(self):
        for tied in ("false", "true"):
            save = self.fresh(".save")
            self.train(self.plan(f"model.tied={tied}", "parallel.pp=4"), "--steps", "0", "--seed", "9", save=save)
            seeded = self.train(self.plan(f"model.tied={tied}"), "--seed", "9")
            loaded = self.train(self.plan(f"model.tied={tied}", "parallel.pp=2"), "--init", save)
            self.assert_same(loaded, seeded)


if __name__ == "__main__":
    unittest.main()
