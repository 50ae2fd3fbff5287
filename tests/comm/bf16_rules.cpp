// Sums whose terms travel in bf16.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "rules.hpp"
#include "world_for_test.hpp"

namespace fem::exec::test {
namespace {

using ir::Group;

bool same_bits(const float* one, const float* other, std::size_t count) {
  return count == 0 || std::memcmp(one, other, count * sizeof(float)) == 0;
}

// To bf16's 8 bits, to nearest, ties to even, by the mathematics of the library: random_floats() are normal numbers.
float rounded(float x) {
  int exponent = 0;
  const float mantissa = std::frexp(x, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(mantissa, 8)), exponent - 8);
}

// Every member's values rounded, then summed in fp32 from the left; a single member's are left alone.
std::vector<float> reference_bf16_sum(const std::vector<int>& ranks, std::uint64_t call, std::size_t count) {
  std::vector<float> sum = random_floats(seed_of(call, ranks[0]), count);
  if (ranks.size() == 1) return sum;
  for (float& x : sum) x = rounded(x);
  for (std::size_t j = 1; j < ranks.size(); ++j) {
    const std::vector<float> term = random_floats(seed_of(call, ranks[j]), count);
    for (std::size_t i = 0; i < count; ++i) sum[i] += rounded(term[i]);
  }
  return sum;
}

}  // namespace

void bf16_sums_are_ordered_sums_of_rounded_values(Communicator& comm) {
  std::uint64_t call = 11000;
  for (Group group : groups()) {
    const std::vector<int> ranks = ranks_of(comm, group);
    for (std::size_t block : {0, 1, 3, 1001, 300'000}) {
      if (block > 2000 && (group != Group::world || comm.size() > 4)) continue;
      for (std::size_t more : {0, 1, 3}) {  // elements that do not divide evenly
        ++call;
        const std::size_t count = block * ranks.size() + more;
        std::vector<float> data = random_floats(seed_of(call, comm.rank()), count);
        comm.all_reduce_sum(group, data, Payload::Bf16);
        EXPECT_TRUE(same_bits(data.data(), reference_bf16_sum(ranks, call, count).data(), count))
            << ir::name(group) << ", " << count << " elements";
      }
      ++call;
      std::vector<float> data = random_floats(seed_of(call, comm.rank()), block * ranks.size());
      comm.reduce_scatter_sum(group, data, Payload::Bf16);
      const std::size_t own = static_cast<std::size_t>(comm.group_rank(group)) * block;
      EXPECT_TRUE(same_bits(data.data() + own, reference_bf16_sum(ranks, call, data.size()).data() + own, block))
          << ir::name(group) << ", blocks of " << block;
    }
  }
}

// What is not finite stays so on every member.
void bf16_sums_keep_what_is_not_finite(Communicator& comm) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> data{1, inf, -inf, nan, -0.0f, std::bit_cast<float>(0x7f800001u)};
  comm.all_reduce_sum(Group::world, data, Payload::Bf16);
  EXPECT_EQ(data[0], static_cast<float>(comm.size()));
  EXPECT_EQ(data[1], inf);
  EXPECT_EQ(data[2], -inf);
  EXPECT_TRUE(std::isnan(data[3]));
  EXPECT_TRUE(data[4] == 0 && std::signbit(data[4]));
  EXPECT_TRUE(std::isnan(data[5]));  // its payload lies in the half that is cut off
}

}  // namespace fem::exec::test
