// A model and a machine whose sizes and prices are easy to compute by hand.
#pragma once

#include "ir/plan.hpp"
#include "orders.hpp"
#include "passes/profile.hpp"

namespace fem::test {

// hidden 16, intermediate 32, 2 heads of 8, vocabulary 64, 8 tokens a microbatch, one block a stage (see make_plan).
//   block       2*16 norms, 4 * 16*16 attention, 3 * 16*32 SwiGLU        = 2592 parameters
//   embedding   64*16 = 1024; head 1024 + 16 = 1040
// Saved floats of a block: input, q, k, v, attention, mid 8*16 each (768), two rstd 8 each (16), lse 8*2 (16), gate
// and up 8*32 each (512): 1312, all of 4 bytes in fp32: 5248 bytes.
//   embedding   8 token ids of 8 bytes: 64
//   head        input 128, rstd 8, logits 8*64 = 512, lse 8 floats: 656, and 8 targets of 8 bytes: 2688
// Weight work of a block: attention_input, grad_q, grad_k, grad_v, attention, grad_mid, swiglu_input, grad_output 128
// each (1024), grad_gate, grad_up, swiglu 256 each (768), two norms 16 each (32): 1824 floats, 7296 bytes.
//   embedding   64 + 128*4 = 576;   head  (128 + 512 + 16) * 4 = 2624
inline constexpr std::int64_t kBlock = 2592, kEmbedding = 1024, kHead = 1040;
inline constexpr std::int64_t kActivation = 8 * 16 * 4;
inline constexpr std::int64_t kBlockSaved = 5248, kEmbeddingSaved = 64, kHeadSaved = 2688;
inline constexpr std::int64_t kBlockWork = 7296, kEmbeddingWork = 576, kHeadWork = 2624;

// Nothing is limited by memory and messages take no time, unless a test says so.
inline passes::HardwareProfile fast_machine() {
  passes::HardwareProfile profile;
  profile.name = "test";
  profile.matmul = {1000, 4000, 2000};
  profile.efficiency = 0.5;
  profile.memory_bandwidth = 1e18;
  profile.host_bandwidth = 100;
  profile.node_size = 8;
  profile.links[0] = {0, 1e18};
  profile.links[1] = {0, 1e18};
  return profile;
}

}  // namespace fem::test
