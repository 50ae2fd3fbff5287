"""The build without what may be missing: CUDA's toolkit, MPI; and without what may not."""
import json
import os
import shutil
import subprocess
import unittest
from pathlib import Path

ROOT = Path(os.environ["FEM_SOURCE"]).resolve()
TORCH = os.environ["FEM_TORCH_DIR"]
JOBS = str(os.cpu_count())


def environment():
    """This environment without any sign of CUDA: no variable, and no folder with nvcc on PATH."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA", "NVCC"))}
    kept["PATH"] = os.pathsep.join(d for d in kept["PATH"].split(os.pathsep) if not (Path(d) / "nvcc").exists())
    return kept


def call(*command):
    return subprocess.run([str(c) for c in command], cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, check=False)


def configure(folder, *options):
    return call("cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                f"-DFEM_TORCH_DIR={TORCH}", f"-DFEM_CCACHE_DIR={os.environ['FEM_CCACHE_DIR']}", *options)


def sources(folder):
    """The compiled files of the executor's communicators and lanes, by name."""
    commands = json.loads((folder / "compile_commands.json").read_text())
    paths = [Path(c["file"]).relative_to(ROOT) for c in commands if Path(c["file"]).is_relative_to(ROOT / "executor")]
    return {p.name for p in paths if p.parts[1] in ("comm", "lanes")}


class Hidden(unittest.TestCase):
    """A build without a feature works and says so when asked for it. It lives at the same depth as build/release, so
    that ccache finds what the ordinary build has compiled; only the feature's own files differ."""

    def build_without(self, name, *options):
        folder = ROOT / "build" / f"without_{name}"
        shutil.rmtree(folder, ignore_errors=True)
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        configured = configure(folder, *options)
        self.assertEqual(configured.returncode, 0, configured.stdout + configured.stderr)
        built = call("ninja", "-C", folder, "-j", JOBS, "femc", "femrun")
        self.assertEqual(built.returncode, 0, built.stdout + built.stderr)
        return folder, configured.stdout

    def refused(self, folder, backend):
        """What femrun says to a backend that this build lacks."""
        plan = folder / "plan.txt"
        planned = call(folder / "bin" / "femc", "plan", "examples/quickstart.yaml", "-o", plan)
        self.assertEqual(planned.returncode, 0, planned.stderr)
        run = call(folder / "bin" / "femrun", plan, "--backend", backend)
        self.assertEqual(run.returncode, 3, run.stdout + run.stderr)
        return run.stderr

    def test_cuda(self):
        folder, summary = self.build_without("cuda", "-DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON")
        self.assertIn("-- femtotron: CUDA, NCCL left out (no CUDA toolkit found)\n", summary)
        self.assertIn("no_cuda.cpp", sources(folder))
        self.assertEqual([s for s in sources(folder) if s.startswith(("nccl_", "cuda_", "load_cuda"))], [])
        self.assertFalse((folder / "bin" / "libfem_nccl.so").exists())
        self.assertRegex(self.refused(folder, "nccl"), "CUDA")

    def test_mpi(self):
        folder, summary = self.build_without("mpi", "-DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON")
        self.assertIn("-- femtotron: MPI        left out (no MPI compiler found)\n", summary)
        self.assertIn("no_mpi.cpp", sources(folder))
        self.assertEqual([s for s in sources(folder) if s.startswith("mpi_")], [])
        self.assertRegex(self.refused(folder, "mpi"), "MPI")


class Missing(unittest.TestCase):
    """A needed library that is missing ends the configuration with one line that says what to install."""

    def test_each_library(self):
        folder = ROOT / "build" / "without_library"
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        for name, package in (("yaml-cpp", "libyaml-cpp-dev"), ("fmt", "libfmt-dev"), ("CLI11", "libcli11-dev"),
                              ("nlohmann_json", "nlohmann-json3-dev"), ("Boost", "libboost-graph-dev")):
            shutil.rmtree(folder, ignore_errors=True)
            result = configure(folder, f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON")
            self.assertEqual(result.returncode, 1)
            message = " ".join(result.stderr.split())  # CMake wraps it
            self.assertIn(f"femtotron: {name} not found: install the Debian package {package} Call Stack", message)
            self.assertEqual(result.stderr.count("CMake Error"), 1, result.stderr)

    def test_libtorch(self):
        folder = ROOT / "build" / "without_library"
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        result = configure(folder, "-DFEM_TORCH_DIR=/nowhere")
        self.assertEqual(result.returncode, 1)
        self.assertIn("LibTorch not found at FEM_TORCH_DIR='/nowhere'", " ".join(result.stderr.split()))


if __name__ == "__main__":
    unittest.main()
