#include "ir/verify_channels.hpp"

#include <algorithm>

namespace fem::ir::verifying {

Channels::Channels(const Layout& layout) : layout_(layout), forward_(layout.stages()), backward_(layout.stages()) {
  const auto ends = [&layout](int s) {
    return Channel{static_cast<std::size_t>(layout.stage(s).pp),
                   static_cast<std::size_t>(layout.stage(layout.stage(s).next).pp)};
  };
  for (int s = 0; s < static_cast<int>(layout.stages()); ++s) {
    if (!layout.sends_output(s)) continue;
    const Channel c = ends(s);
    channels_.push_back(c);
    channels_.push_back({c.to, c.from});
  }
  std::sort(channels_.begin(), channels_.end());
  channels_.erase(std::unique(channels_.begin(), channels_.end()), channels_.end());
  const auto index = [this](const Channel& c) {
    return static_cast<std::uint32_t>(std::lower_bound(channels_.begin(), channels_.end(), c) - channels_.begin());
  };
  for (int s = 0; s < static_cast<int>(layout.stages()); ++s) {
    if (!layout.sends_output(s)) continue;
    const Channel c = ends(s);
    forward_[static_cast<std::size_t>(s)] = index(c);
    backward_[static_cast<std::size_t>(s)] = index({c.to, c.from});
  }
}

bool Channels::meet(const Action& send, const Action& receive) const {
  if (send.microbatch != receive.microbatch) return false;
  if (send.kind == ActionKind::SendForward) {
    return receive.kind == ActionKind::RecvForward && layout_.stage(send.stage).next == receive.stage;
  }
  return receive.kind == ActionKind::RecvBackward && layout_.stage(send.stage).prev == receive.stage;
}

}  // namespace fem::ir::verifying
