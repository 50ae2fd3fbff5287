// Where the members of one fake communicator meet: what they issued, in order, and the moving of the data.
#pragma once

#include <nccl.h>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace fake {

enum class Kind { send, receive, all_gather, all_reduce, reduce_scatter, broadcast };

// One member's part in a collective, or one half of a transfer.
struct Operation {
  Kind kind{};
  const void* from = nullptr;
  void* to = nullptr;
  std::size_t bytes = 0;  // that the call names: of a block where there are blocks
  ncclDataType_t type = ncclInt8;
  int peer = -1;  // or root
};
std::string text(const Operation& operation);  // "all_gather of 16 bytes"

// Each operation is issued when the host calls, which checks it against the others', and runs in its stream: it waits
// there for the others' and one of them moves the data. Whoever is told to stop leaves at once.
class Meeting {
 public:
  Meeting(int number, int members) : number_(number), members_(members), issued_(size(members)) {}

  struct Ticket {  // of an issued operation
    Operation operation;
    std::size_t collective = 0;  // how many came before it
  };
  Ticket issue(int member, const Operation& operation);
  void run(int member, const std::vector<Ticket>& group, const bool& stop);  // `stop` is read under the mutex

  int number() const { return number_; }
  int members() const { return members_; }
  void stop(bool& member);  // sets a member's `stop` and wakes it

 private:
  struct Part {
    Operation operation;
    bool here = false;  // its stream has come to it
  };
  struct Collective {
    std::vector<Part> parts;  // by member
    std::vector<bool> known;
    int here = 0;
    bool done = false;
  };
  struct Half {
    Operation operation;
    bool* done = nullptr;
  };
  struct Pair {  // one direction between two members
    std::deque<Operation> sends, receives;        // issued and not yet compared
    std::deque<Half> waiting_sends, waiting_receives;  // that their streams have come to
  };

  static std::size_t size(int n) { return static_cast<std::size_t>(n); }
  Collective& collective(std::size_t index);
  void come(int member, const Ticket& ticket, bool& done);
  void compare(Pair& pair);
  void move(Collective& all) const;
  void broken(const std::string& rule);

  int number_, members_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::size_t> issued_;  // collectives by member
  std::deque<Collective> collectives_;
  std::map<std::pair<int, int>, Pair> pairs_;  // from, to
  bool broken_ = false;                        // a rule was broken: nobody waits any more
};

}  // namespace fake
