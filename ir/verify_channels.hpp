// Who can wait for whom: the message channels between pipeline ranks, and the kinds of group that more than one
// pipeline rank belongs to. Used by the verifier's files only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ir/verify_layout.hpp"

namespace fem::ir::verifying {

// Messages from one rank to another, forward and backward, in one order.
struct Channel {
  std::size_t from, to;
  friend auto operator<=>(const Channel&, const Channel&) = default;
};

class Channels {
 public:
  explicit Channels(const Layout& layout);

  std::size_t size() const { return channels_.size(); }
  const Channel& operator[](std::size_t i) const { return channels_[i]; }

  // The channel of a send or receive whose peer passed V07.
  std::uint32_t of(const Action& half) const {
    const bool to_next = half.kind == ActionKind::SendForward || half.kind == ActionKind::RecvBackward;
    const std::size_t edge = edge_of(half, to_next);
    const bool forward = half.kind == ActionKind::SendForward || half.kind == ActionKind::RecvForward;
    return (forward ? forward_ : backward_)[edge];
  }
  // The two are the ends of one message.
  bool meet(const Action& send, const Action& receive) const;

 private:
  // Edges are named by the stage before them.
  std::size_t edge_of(const Action& half, bool to_next) const {
    return static_cast<std::size_t>(to_next ? half.stage : layout_.stage(half.stage).prev);
  }

  const Layout& layout_;
  std::vector<Channel> channels_;
  std::vector<std::uint32_t> forward_, backward_;  // by edge: the channel of activations, of gradients
};

// The other groups hold ranks of one pipeline coordinate only; these run the same program and agree by themselves.
inline constexpr std::array kCrossRankGroups{Group::world, Group::pp, Group::tied, Group::replica};

}  // namespace fem::ir::verifying
