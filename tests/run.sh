#!/bin/bash
# Installs what is missing, builds everything and runs all tests:  bash tests/run.sh [ctest arguments]
#
# Without arguments: first the tests that need no LibTorch under AddressSanitizer and UndefinedBehaviorSanitizer
# (build/asan), then every test but the benchmarks in build/release. With arguments, such as -L fast or -R parse, they
# go to ctest and only build/release is run.
set -euo pipefail
# shellcheck source=cmake/bootstrap.sh
. "$(dirname "${BASH_SOURCE[0]}")/../cmake/bootstrap.sh"

fem_bootstrap
fem_add_test_packages
cd "$FEM_ROOT"

if [ $# = 0 ]; then
  fem_build asan asan_tests
  ctest --test-dir build/asan -L asan -j2 --output-on-failure --no-tests=error --timeout 600
fi
fem_build release
ctest --test-dir build/release -LE bench -j2 --output-on-failure --no-tests=error --timeout 900 "$@"
