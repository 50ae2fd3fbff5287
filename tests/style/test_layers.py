"""Who may include whom: ir <- passes <- compiler; ir <- executor; no other edge between the layers. And who may name a
third-party library. A test may include everything."""
import os
import re
import subprocess
import unittest
from pathlib import Path

import source_tree

LAYERS = {  # folder: (folders it may include, third-party headers it may include)
    "ir": ({"ir"}, ()),
    "passes": ({"ir", "passes"}, ("boost/",)),
    "compiler": ({"ir", "passes", "compiler"}, ("yaml-cpp/", "CLI/", "fmt/", "nlohmann/")),
    "executor": ({"ir", "executor"}, ("ATen/", "c10/", "torch/", "CLI/", "fmt/", "nlohmann/", "mpi.h", "nccl.h",
                                      "cuda_runtime")),
}
# The operating system's headers: programs and files need them, the language of plans does not.
SYSTEM_LAYERS = {"compiler", "executor"}

MPI = re.compile(r"\bMPI_[A-Z]\w*|\bmpi\.h\b")
NCCL = re.compile(r"\bnccl[A-Z]\w*|\bnccl\.h\b")
CUDA = re.compile(r"\bcuda[A-Z]\w*|\bcuda_runtime\w*\.h\b|\bCUDA(?:Stream|Event)\w*")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">\n]+)[">]', re.M)


def is_standard(name):
    """Headers of the C++ library have no dot; those of C are included as <cstdint>, never <stdint.h>."""
    return "." not in name and "/" not in name


def is_system(name):
    return name.endswith(".h") and not name.startswith(("ATen/", "c10/", "torch/", "cuda", "nccl", "mpi"))


def include_problems(path, text):
    layer = path.parts[0]
    if layer not in LAYERS:
        return []
    ours, third_party = LAYERS[layer]
    problems = []
    for match in INCLUDE.finditer(text):
        where = f"{path}:{text.count(chr(10), 0, match.start()) + 1}"
        quote, name = match.groups()
        if quote == '"':
            if Path(name).parts[0] not in ours:
                problems.append(f'{where}: {layer} must not include "{name}"')
            elif not (source_tree.ROOT / name).is_file():
                problems.append(f'{where}: no file "{name}" (quoted names start at the root)')
        elif not (is_standard(name) or name.startswith(third_party) or layer in SYSTEM_LAYERS and is_system(name)):
            problems.append(f"{where}: {layer} must not include <{name}>")
    return problems


def name_problems(path, text):
    """executor/comm alone names MPI and NCCL; executor/lanes alone CUDA, besides NCCL's files, which take a stream."""
    if path.parts[0] not in LAYERS:
        return []
    in_comm = path.parts[:2] == ("executor", "comm")
    rules = [(MPI, in_comm and path.name.startswith("mpi_"), "executor/comm/mpi_*"),
             (NCCL, in_comm and path.name.startswith("nccl_"), "executor/comm/nccl_*"),
             (CUDA, path.parts[:2] == ("executor", "lanes") or in_comm and path.name.startswith("nccl_"),
              "executor/lanes and executor/comm/nccl_*")]
    code = source_tree.without_literals(text)
    return [f"{path}: {match[0]} belongs to {place}" for rule, allowed, place in rules if not allowed
            for match in rule.finditer(code)]


def needed_libraries(program):
    output = subprocess.run(["readelf", "-d", str(program)], capture_output=True, text=True, check=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.*)\]", output)


class Tree(unittest.TestCase):
    def setUp(self):
        self.files = [f for f in source_tree.files() if f.suffix in source_tree.CPP]
        for layer in LAYERS:
            self.assertTrue([f for f in self.files if f.parts[0] == layer], layer)

    def test_include_edges(self):
        problems = [p for f in self.files for p in include_problems(f, source_tree.read(f))]
        self.assertEqual(problems, [], "\n" + "\n".join(problems))

    def test_names_of_mpi_nccl_and_cuda(self):
        problems = [p for f in self.files for p in name_problems(f, source_tree.read(f))]
        self.assertEqual(problems, [], "\n" + "\n".join(problems))

    def test_femc_runs_without_torch_and_mpi(self):
        libraries = needed_libraries(Path(os.environ["FEM_BIN"]) / "femc")
        self.assertTrue([name for name in libraries if name.startswith("libstdc++")], libraries)
        self.assertEqual([name for name in libraries if re.search("torch|c10|mpi|cuda|nccl", name)], [])

    def test_femrun_runs_without_cuda(self):
        libraries = needed_libraries(Path(os.environ["FEM_BIN"]) / "femrun")
        self.assertIn("libtorch_cpu.so", libraries)
        self.assertEqual([name for name in libraries if re.search("cuda|nccl", name)], [])


class Rules(unittest.TestCase):
    def check(self, path, text, count):
        problems = include_problems(Path(path), text) + name_problems(Path(path), text)
        self.assertEqual(len(problems), count, (path, text, problems))

    def test_edges_that_are_allowed(self):
        self.check("ir/x.cpp", '#include "ir/action.hpp"\n#include <vector>\n#include <cstdint>\n', 0)
        self.check("passes/x.cpp", '#include "ir/action.hpp"\n#include <boost/graph/adjacency_list.hpp>\n', 0)
        self.check("compiler/x.cpp", '#include "ir/action.hpp"\n#include <yaml-cpp/yaml.h>\n#include <unistd.h>\n', 0)
        self.check("executor/comm/mpi_x.cpp", '#include <mpi.h>\nint r = MPI_Init(nullptr, nullptr);\n', 0)
        self.check("executor/comm/nccl_x.cpp", '#include <nccl.h>\n#include <cuda_runtime_api.h>\ncudaStream_t s;\n', 0)
        self.check("tests/x/x.cpp", '#include "passes/a.hpp"\n#include "executor/b.hpp"\n', 0)
        self.check("executor/x.cpp", '// as MPI_Issend does\nauto text = "MPI_Issend";\n', 0)

    def test_edges_that_are_not(self):
        self.check("ir/x.cpp", '#include "passes/manager.hpp"\n', 1)
        self.check("ir/x.cpp", "#include <boost/graph/graph_traits.hpp>\n", 1)
        self.check("ir/x.cpp", "#include <unistd.h>\n", 1)
        self.check("ir/x.cpp", "  #  include <fmt/format.h>\n", 1)
        self.check("passes/x.cpp", '#include "compiler/config.hpp"\n', 1)
        self.check("compiler/x.cpp", "#include <ATen/core/Tensor.h>\n", 1)
        self.check("compiler/x.cpp", '#include "executor/error.hpp"\n', 1)
        self.check("executor/x.cpp", '#include "compiler/config.hpp"\n', 1)
        self.check("executor/x.cpp", '#include "passes/manager.hpp"\n', 1)
        self.check("executor/x.cpp", "#include <boost/config.hpp>\n", 1)
        self.check("ir/x.cpp", '#include "action.hpp"\n', 1)
        self.check("ir/x.cpp", '#include "ir/no_such_file.hpp"\n', 1)

    def test_names_that_are_misplaced(self):
        self.check("executor/x.cpp", "#include <mpi.h>\n", 1)
        self.check("executor/comm/local_x.cpp", "int x = MPI_COMM_WORLD;\n", 1)
        self.check("executor/lanes/x.cpp", "ncclComm_t c;\n", 1)
        self.check("executor/units/x.cpp", "cudaStream_t s;\n", 1)
        self.check("executor/comm/local_x.cpp", "at::cuda::CUDAStream s;\n", 1)


if __name__ == "__main__":
    unittest.main()
