// The orders that the other tests build on, against the sequences of their publications for p=2, m=4.
#include "orders.hpp"

#include <gtest/gtest.h>

namespace fem {
namespace {

TEST(Orders, OneFOneB) {
  const test::Order order = test::one_f_one_b(2, 4);
  EXPECT_EQ(test::compute_text(order[0]), "0F0 0F1 0B0 0F2 0B1 0F3 0B2 0B3");
  EXPECT_EQ(test::compute_text(order[1]), "1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3");
}

TEST(Orders, Interleaved) {
  const test::Order order = test::interleaved(2, 4, 2, 2);
  EXPECT_EQ(test::compute_text(order[0]), "0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3");
  EXPECT_EQ(test::compute_text(order[1]), "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3");
  EXPECT_EQ(test::compute_text(test::interleaved(2, 4, 2, 2, true)[1]),
            "1F0 1F1 3F0 3I0 3F1 3I1 3W0 1F2 1I0 3W1 1F3 1I1 1W0 3F2 3I2 1W1 3F3 3I3 3W2 1I2 3W3 1I3 1W2 1W3");
}

TEST(Orders, DualPipeV) {
  EXPECT_EQ(test::compute_text(test::dualpipe_v(2, 4)[0]),
            "0F0 0F1 0F2 3F0 3I0 3W0 3F1 (0F3;3B1) (3F2;0B0) 3B2 (3F3;0B1) 3B3 0I2 0W2 0I3 0W3");
}

}  // namespace
}  // namespace fem
