// Operators on the Meta device that LibTorch has in Python alone, shapes only. For dry runs.
#pragma once

namespace fem::exec {

// For the rest of the process: flash attention for CPUs and its backward. May be called again.
void register_meta_operators();

}  // namespace fem::exec
