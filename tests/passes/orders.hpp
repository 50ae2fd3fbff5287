// Stage programs written down from the published rules, independent of the compiler, and plans around them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/plan.hpp"

namespace fem::test {

// Where stage s of `chunks * p` lies: loop s mod p; V s below p and 2p-1-s above; bidirectional: two replicas of p
// stages, stage s on rank s and stage p+s on rank p-1-s.
enum class Placement { Loop, V, Bidirectional };

using Order = std::vector<std::vector<ir::Action>>;  // by rank: forwards and backwards only

std::vector<ir::Stage> stages(Placement placement, int p, int chunks);

// A train (or forward-only eval) plan at stage level whose ranks run `order` between ZeroGrad and the optimizer's part.
ir::Plan make_plan(Placement placement, int p, int chunks, int m, Order order, bool forward_only = false);

// All F, then all backwards in reverse microbatch order.
Order gpipe(int p, int m);
// Warm-up of min(p-1-r, m) F, then F and backward in turn (arXiv 2006.09503, 2104.04473).
Order one_f_one_b(int p, int m);
// Chunks ascending, all F of a chunk; chunks descending, all backwards (arXiv 2211.05953).
Order looped_bfs(int p, int m, int v);
// arXiv 2104.04473 with microbatch groups of n; `split`: the zero-bubble form, W one B of the rank's number later.
Order interleaved(int p, int m, int v, int n, bool split = false);
// ZB-H1 (h = 1) and ZB-H2 (h = 2) of arXiv 2401.10241: warm-up of h(p-1-r) F, weight gradients h*r backwards later.
Order zb_h(int p, int m, int h);
// ZB-V at p=2, m=4 (arXiv 2405.15362), as a table.
Order zb_v_2_4();
// Phases of DualPipe (DeepSeek-V3, arXiv 2412.19437): p even, m even, m >= 2p; V form: v=2, V placement, m >= 2p.
Order dualpipe(int p, int m);
Order dualpipe_v(int p, int m);
// Any valid order: ranks and ready operations chosen at random. `split`: I and W in place of whole backwards;
// `pairs`: now and then a forward and a backward that are ready together run as an overlapped pair.
Order random_order(std::uint32_t seed, Placement placement, int p, int chunks, int m, bool split, bool pairs);
// The forwards of an order.
Order forwards_only(Order order);

// "0F0 2B1 (0F3;3B1)": stage, kind (F, B, I, W), microbatch; pairs in parentheses; everything else is passed over.
std::string compute_text(const std::vector<ir::Action>& actions);
std::vector<ir::Action> read_order(const std::string& text);

}  // namespace fem::test
