#include "rules.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <thread>
#include <vector>

#include "executor/error.hpp"
#include "world_for_test.hpp"

namespace fem::exec::test {

using ir::Group;
using ir::Lane;

const std::vector<Group>& groups() {
  static const std::vector<Group> all{Group::world, Group::pp,    Group::dp,        Group::cp,
                                      Group::tp,    Group::ep,    Group::dp_cp,     Group::shard,
                                      Group::replicate, Group::tied, Group::replica};
  return all;
}

std::vector<int> ranks_of(Communicator& comm, Group group) {
  std::vector<int> ranks(static_cast<std::size_t>(comm.group_size(group)));
  const int own = comm.rank();
  comm.all_gather(group, &own, ranks.data(), sizeof(int));
  return ranks;
}

namespace {

using Bytes = std::vector<std::uint8_t>;

void groups_hold_their_ranks(Communicator& comm) {
  for (Group group : groups()) {
    const std::vector<int> ranks = ranks_of(comm, group);
    EXPECT_TRUE(std::is_sorted(ranks.begin(), ranks.end()));
    EXPECT_EQ(ranks[static_cast<std::size_t>(comm.group_rank(group))], comm.rank()) << ir::name(group);
  }
  EXPECT_EQ(comm.group_size(Group::world), comm.size());
  EXPECT_EQ(comm.group_rank(Group::world), comm.rank());
}

void ring_passes_data(Communicator& comm) {
  if (comm.size() == 1) return;
  const int next = (comm.rank() + 1) % comm.size(), before = (comm.rank() + comm.size() - 1) % comm.size();
  for (std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{1021}, std::size_t{1} << 20}) {
    const Bytes sent = random_bytes(seed_of(1, comm.rank()), bytes);
    Bytes received(bytes);
    const std::vector<P2pHalf> halves{{true, next, 5, const_cast<std::uint8_t*>(sent.data()), bytes},
                                      {false, before, 5, received.data(), bytes}};
    comm.exchange(halves);
    EXPECT_EQ(received, random_bytes(seed_of(1, before), bytes)) << bytes << " bytes";
  }
}

// Between two ranks: sends of one tag arrive in order, also when posted together.
void equal_tags_keep_their_order(Communicator& comm) {
  if (comm.size() == 1 || comm.rank() > 1) return;
  std::vector<int> values(20, -1);
  if (comm.rank() == 0)
    for (int i = 0; i < 20; ++i) values[static_cast<std::size_t>(i)] = i;
  std::vector<P2pHalf> halves;
  for (int& value : values) halves.push_back({comm.rank() == 0, 1 - comm.rank(), 3, &value, sizeof value});
  comm.exchange(std::span(halves).first(10));
  for (int i = 10; i < 20; ++i) comm.exchange(std::span(halves).subspan(static_cast<std::size_t>(i), 1));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(values[static_cast<std::size_t>(i)], i);
}

// One batch against another order, and against two batches.
void halves_meet_by_tag(Communicator& comm) {
  if (comm.size() == 1 || comm.rank() > 1) return;
  for (int split = 0; split < 2; ++split) {
    int first = comm.rank() == 0 ? 11 : 0, second = comm.rank() == 0 ? 22 : 0;
    const P2pHalf one{comm.rank() == 0, 1 - comm.rank(), 1, &first, sizeof(int)};
    const P2pHalf two{comm.rank() == 0, 1 - comm.rank(), 2, &second, sizeof(int)};
    if (comm.rank() == 0) {
      comm.exchange(std::vector{one, two});
    } else if (split) {
      comm.exchange(std::vector{two});
      comm.exchange(std::vector{one});
    } else {
      comm.exchange(std::vector{two, one});
    }
    EXPECT_EQ(first, 11);
    EXPECT_EQ(second, 22);
  }
}

// Tags are whole 64-bit numbers: nothing is cut off.
void tags_are_wide(Communicator& comm) {
  if (comm.size() == 1 || comm.rank() > 1) return;
  const std::int64_t tags[] = {1, (std::int64_t{1} << 40) + 1, std::int64_t{-1}, (std::int64_t{1} << 62) + 1};
  int values[4] = {};
  std::vector<P2pHalf> halves;
  for (int i = 0; i < 4; ++i) {
    const int at = comm.rank() == 0 ? i : 3 - i;
    if (comm.rank() == 0) values[at] = 100 + at;
    halves.push_back({comm.rank() == 0, 1 - comm.rank(), tags[at], &values[at], sizeof(int)});
  }
  comm.exchange(halves);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(values[i], 100 + i);
}

// A send is over only when it is being received, however small it is: rank 1 receives the data after the go-ahead,
// which another lane of rank 0 sends once it has given a buffered send time to end.
void sends_are_rendezvous(Communicator& comm) {
  if (comm.size() == 1 || comm.rank() > 1) return;
  const int other = 1 - comm.rank();
  int data = comm.rank() == 0 ? 7 : 0, go = 0;
  const P2pHalf data_half{comm.rank() == 0, other, 1, &data, sizeof data};
  const P2pHalf go_half{comm.rank() == 0, other, 2, &go, sizeof go};
  if (comm.rank() == 0) {
    std::atomic<bool> sent{false};
    std::thread later([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      EXPECT_FALSE(sent.load());
      comm.exchange(std::vector{go_half}, Lane::Copy);
    });
    comm.exchange(std::vector{data_half});
    sent.store(true);
    later.join();
  } else {
    comm.exchange(std::vector{go_half}, Lane::Copy);
    comm.exchange(std::vector{data_half});
    EXPECT_EQ(data, 7);
  }
}

void collectives_move_blocks(Communicator& comm) {
  for (std::uint64_t seed = 0; seed < 3; ++seed) random_collectives(comm, 77 + seed, 24, Lane::Collective);
}

void batches_move_data(Communicator& comm) {
  for (std::uint64_t seed = 0; seed < 3; ++seed) random_batches(comm, 99 + seed, 24, Lane::P2p);
}

void gather_in_place(Communicator& comm) {
  for (Group group : groups()) {
    const std::vector<int> ranks = ranks_of(comm, group);
    std::vector<int> values(ranks.size(), -1);
    int& own = values[static_cast<std::size_t>(comm.group_rank(group))];
    own = comm.rank();
    comm.all_gather(group, &own, values.data(), sizeof(int));
    EXPECT_EQ(values, ranks) << ir::name(group);
  }
}

bool same_bits(const float* one, const float* other, std::size_t count) {
  return count == 0 || std::memcmp(one, other, count * sizeof(float)) == 0;
}

// From the left, in group order: the value that the interface promises.
std::vector<float> reference_sum(const std::vector<int>& ranks, std::uint64_t call, std::size_t count) {
  std::vector<float> sum = random_floats(seed_of(call, ranks[0]), count);
  for (std::size_t j = 1; j < ranks.size(); ++j) {
    const std::vector<float> term = random_floats(seed_of(call, ranks[j]), count);
    for (std::size_t i = 0; i < count; ++i) sum[i] += term[i];
  }
  return sum;
}

void all_reduce_is_the_ordered_sum(Communicator& comm) {
  std::uint64_t call = 5000;
  for (Group group : groups()) {
    const std::vector<int> ranks = ranks_of(comm, group);
    for (std::size_t count : {0, 1, 2, 3, 4, 5, 7, 64, 1001}) {
      ++call;
      std::vector<float> data = random_floats(seed_of(call, comm.rank()), count);
      comm.all_reduce_sum(group, data);
      EXPECT_TRUE(same_bits(data.data(), reference_sum(ranks, call, count).data(), count))
          << ir::name(group) << ", " << count << " elements";
    }
  }
}

// More than the pieces in which the sums are made.
void large_sums(Communicator& comm) {
  if (comm.size() > 4) return;  // the reference would take seconds
  const std::vector<int> ranks = ranks_of(comm, Group::world);
  const std::size_t count = ranks.size() * 300'000 + 1;
  std::vector<float> data = random_floats(seed_of(1, comm.rank()), count);
  comm.all_reduce_sum(Group::world, data);
  EXPECT_TRUE(same_bits(data.data(), reference_sum(ranks, 1, count).data(), count));
}

void reduce_scatter_is_the_ordered_sum(Communicator& comm) {
  std::uint64_t call = 9000;
  for (Group group : groups()) {
    const std::vector<int> ranks = ranks_of(comm, group);
    for (std::size_t block : {0, 1, 3, 1001, 300'000}) {
      if (block > 2000 && (group != Group::world || comm.size() > 4)) continue;
      ++call;
      std::vector<float> data = random_floats(seed_of(call, comm.rank()), block * ranks.size());
      comm.reduce_scatter_sum(group, data);
      const std::size_t own = static_cast<std::size_t>(comm.group_rank(group)) * block;
      EXPECT_TRUE(same_bits(data.data() + own, reference_sum(ranks, call, data.size()).data() + own, block))
          << ir::name(group) << ", blocks of " << block;
    }
    if (ranks.size() > 1) {
      std::vector<float> uneven(ranks.size() + 1);
      EXPECT_THROW(comm.reduce_scatter_sum(group, uneven), ExecutionError) << "not equal blocks";
    }
  }
}

// A negative zero stays one: the sum does not start from +0.
void sums_keep_negative_zero(Communicator& comm) {
  std::vector<float> data(9, -0.0f);
  comm.all_reduce_sum(Group::world, data);
  for (float value : data) EXPECT_TRUE(std::signbit(value));
}

void lanes_are_apart(Communicator& comm) {
  std::thread p2p([&] { random_batches(comm, 31, 40, Lane::P2p); });
  std::thread compute([&] { random_collectives(comm, 32, 40, Lane::Compute); });
  std::thread copy([&] { random_batches(comm, 33, 40, Lane::Copy); });
  random_collectives(comm, 34, 40, Lane::Collective);
  p2p.join();
  compute.join();
  copy.join();
}

void barriers_return(Communicator& comm) {
  for (int round = 0; round < 20; ++round)
    for (Group group : groups()) comm.barrier(group);
}

void bad_operands_are_refused(Communicator& comm) {
  int value = 0;
  const auto exchange = [&](P2pHalf half) { comm.exchange(std::vector{half}); };
  EXPECT_THROW(exchange({true, comm.rank(), 1, &value, sizeof value}), ExecutionError) << "to itself";
  EXPECT_THROW(exchange({true, comm.size(), 1, &value, sizeof value}), ExecutionError) << "outside the world";
  EXPECT_THROW(exchange({true, -1, 1, &value, sizeof value}), ExecutionError);
  if (comm.size() > 1) {
    EXPECT_THROW(exchange({true, comm.rank() == 0 ? 1 : 0, 1, nullptr, 4}), ExecutionError) << "no buffer";
  }
  EXPECT_THROW(comm.broadcast(Group::world, comm.size(), &value, sizeof value), ExecutionError);
  EXPECT_NO_THROW(comm.exchange({}));
  EXPECT_NO_THROW(comm.barrier(Group::world)) << "a refused call leaves the world as it was";
}

constexpr Rule kRules[] = {
    {"groups_hold_their_ranks", groups_hold_their_ranks, true},
    {"ring_passes_data", ring_passes_data, true},
    {"equal_tags_keep_their_order", equal_tags_keep_their_order, true},
    {"halves_meet_by_tag", halves_meet_by_tag},
    {"tags_are_wide", tags_are_wide},
    {"sends_are_rendezvous", sends_are_rendezvous},
    {"batches_move_data", batches_move_data},
    {"collectives_move_blocks", collectives_move_blocks, true},
    {"gather_in_place", gather_in_place, true},
    {"all_reduce_is_the_ordered_sum", all_reduce_is_the_ordered_sum},
    {"large_sums", large_sums},
    {"reduce_scatter_is_the_ordered_sum", reduce_scatter_is_the_ordered_sum},
    {"bf16_sums_are_ordered_sums_of_rounded_values", bf16_sums_are_ordered_sums_of_rounded_values},
    {"bf16_sums_keep_what_is_not_finite", bf16_sums_keep_what_is_not_finite},
    {"sums_keep_negative_zero", sums_keep_negative_zero, true},
    {"lanes_are_apart", lanes_are_apart},
    {"barriers_return", barriers_return, true},
    {"bad_operands_are_refused", bad_operands_are_refused, true},
};

struct Message {
  int from, to;
  std::int64_t tag;
  std::size_t bytes;
  std::uint64_t seed;
};

std::vector<Message> random_messages(Random& random, int ranks) {
  std::vector<Message> messages(1 + random.below(static_cast<std::uint64_t>(2 * ranks)));
  for (Message& message : messages) {
    message.from = static_cast<int>(random.below(static_cast<std::uint64_t>(ranks)));
    message.to = (message.from + 1 + static_cast<int>(random.below(static_cast<std::uint64_t>(ranks - 1)))) % ranks;
    message.tag = static_cast<std::int64_t>(random.below(3));
    message.seed = random.next();
  }
  // Messages of one pair and tag meet in order, so they may differ in size; a size may be zero.
  for (Message& message : messages) message.bytes = random.below(4) == 0 ? 0 : random.below(3000);
  return messages;
}

}  // namespace

std::span<const Rule> rules() { return kRules; }

void random_batches(Communicator& comm, std::uint64_t seed, int rounds, Lane lane) {
  if (comm.size() == 1) return;
  Random shared(seed);
  Random own(seed * 31 + static_cast<std::uint64_t>(comm.rank()));
  for (int round = 0; round < rounds; ++round) {
    const std::vector<Message> messages = random_messages(shared, comm.size());
    std::vector<Bytes> buffers(messages.size());
    std::vector<P2pHalf> halves;
    for (std::size_t i = 0; i < messages.size(); ++i) {
      const Message& message = messages[i];
      if (message.from != comm.rank() && message.to != comm.rank()) continue;
      const bool send = message.from == comm.rank();
      buffers[i] = send ? random_bytes(message.seed, message.bytes) : Bytes(message.bytes);
      const P2pHalf half{send, send ? message.to : message.from, message.tag, buffers[i].data(), message.bytes};
      // Anywhere, but after the last of the same pair and tag.
      std::size_t least = halves.size();
      while (least > 0 && !(halves[least - 1].send == send && halves[least - 1].peer == half.peer &&
                            halves[least - 1].tag == half.tag))
        --least;
      halves.insert(halves.begin() + static_cast<std::ptrdiff_t>(least + own.below(halves.size() - least + 1)), half);
    }
    comm.exchange(halves, lane);
    for (std::size_t i = 0; i < messages.size(); ++i)
      if (messages[i].to == comm.rank()) {
        ASSERT_EQ(buffers[i], random_bytes(messages[i].seed, messages[i].bytes))
            << "seed " << seed << " round " << round;
      }
  }
}

void random_collectives(Communicator& comm, std::uint64_t seed, int rounds, Lane lane) {
  Random shared(seed);
  for (int round = 0; round < rounds; ++round) {
    const Group group = groups()[shared.below(groups().size())];
    const std::size_t bytes = shared.below(4) == 0 ? shared.below(2) : shared.below(2000);
    const std::uint64_t kind = shared.below(3), call = shared.next();
    const auto members = static_cast<std::size_t>(comm.group_size(group));
    const auto own = static_cast<std::size_t>(comm.group_rank(group));
    // Block j of a member's data is made from the member's place in the group and from the group's lowest rank.
    int first = comm.rank();
    std::vector<int> ranks(members);
    comm.all_gather(group, &first, ranks.data(), sizeof(int), lane);
    first = ranks[0];
    const auto block = [&](std::size_t from, std::size_t to) {
      return random_bytes(call ^ (static_cast<std::uint64_t>(first) << 32 | from << 16 | to), bytes);
    };
    if (kind == 0) {
      const Bytes sent = block(own, 0);
      Bytes received(members * bytes), expected;
      comm.all_gather(group, sent.data(), received.data(), bytes, lane);
      for (std::size_t j = 0; j < members; ++j) {
        const Bytes part = block(j, 0);
        expected.insert(expected.end(), part.begin(), part.end());
      }
      ASSERT_EQ(received, expected) << "all_gather over " << ir::name(group) << ", " << bytes << " bytes";
    } else if (kind == 1) {
      Bytes sent, received(members * bytes), expected;
      for (std::size_t j = 0; j < members; ++j) {
        const Bytes to = block(own, j), from = block(j, own);
        sent.insert(sent.end(), to.begin(), to.end());
        expected.insert(expected.end(), from.begin(), from.end());
      }
      comm.all_to_all(group, sent.data(), received.data(), bytes, lane);
      ASSERT_EQ(received, expected) << "all_to_all over " << ir::name(group) << ", " << bytes << " bytes";
    } else {
      const auto root = static_cast<std::size_t>(call % members);
      Bytes data = own == root ? block(root, root) : Bytes(bytes);
      comm.broadcast(group, static_cast<int>(root), data.data(), bytes, lane);
      ASSERT_EQ(data, block(root, root)) << "broadcast over " << ir::name(group) << ", " << bytes << " bytes";
    }
  }
}

}  // namespace fem::exec::test
