// Which blocks the pass recompute takes, for those who want to know before it runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fem::passes {

// By block of the model: first, first + every, ... up to last, the model's last where it is negative. Presumes that
// `every` is above 0 and `first` not negative, as settings and options are.
inline std::vector<bool> recomputed_blocks(std::int64_t blocks, std::int64_t every, std::int64_t first,
                                           std::int64_t last) {
  std::vector<bool> chosen(static_cast<std::size_t>(blocks));
  const std::int64_t end = last < 0 || last >= blocks ? blocks : last + 1;
  for (std::int64_t b = first; b < end; b += every) chosen[static_cast<std::size_t>(b)] = true;
  return chosen;
}

}  // namespace fem::passes
