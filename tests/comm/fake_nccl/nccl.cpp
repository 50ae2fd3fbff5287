// The part of NCCL that the communicator uses, for ranks that are threads of one process.
#include <nccl.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>

#include "tests/comm/fake_nccl/cuda.hpp"
#include "tests/comm/fake_nccl/meeting.hpp"
#include "tests/comm/fake_nccl/state.hpp"

// One member's end. It stays after it was given back, so that a later use is found out.
struct ncclComm {
  int device, member;
  std::shared_ptr<fake::Meeting> meeting;
  std::size_t splits = 0;  // so far
  int under_way = 0;       // groups and calls in streams
  bool gone = false;       // destroyed or aborted
  bool stop = false;       // aborted
};

namespace fake {
namespace {

constexpr std::chrono::seconds kPatience{20};

// What members say when a communicator is made, and what they get.
struct Making {
  int expected = 0;
  std::vector<std::array<int, 4>> said;  // colour, key, rank in the parent, device
  std::vector<std::shared_ptr<Meeting>> got;  // by rank in the parent; null: none
  std::vector<int> members;                   // by rank in the parent
};

// Under one mutex of their own: making and giving back are rare.
struct World {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::shared_ptr<Making>> makings;
  std::vector<std::unique_ptr<ncclComm>> all;
  int next_number = 0, next_id = 0;
};
World& world() {
  static World world;
  return world;
}

struct Issue {
  ncclComm_t comm;
  cudaStream_t stream;
  Operation operation;
};
// A thread's group calls.
struct Group {
  int depth = 0, number = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<Issue> issues;
  ~Group() {
    if (depth != 0) violated("a thread ends between ncclGroupStart and ncclGroupEnd");
  }
};
thread_local Group group;

ncclResult_t note(int device, const char* name, Call call = {}) {
  call.name = name;
  call.group = group.depth > 0 ? group.number : -1;
  return static_cast<ncclResult_t>(enter(device, std::move(call)));
}

ncclResult_t refuse(const std::string& rule, ncclResult_t code = ncclInvalidArgument) {
  violated(rule);
  if (group.depth > 0) group.error = code;
  return code;
}

// Waits for all members of a making; colours become communicators, ranks in them ordered by key.
ncclResult_t make(const std::string& where, int expected, std::array<int, 4> own, ncclComm_t* comm) {
  std::unique_lock lock(world().mutex);
  std::shared_ptr<Making>& entry = world().makings[where];
  if (!entry) entry = std::make_shared<Making>();
  const std::shared_ptr<Making> making = entry;
  if (making->expected != 0 && making->expected != expected)
    return refuse(where + ": members disagree on their number");
  making->expected = expected;
  making->said.push_back(own);
  if (static_cast<int>(making->said.size()) == expected) {
    std::sort(making->said.begin(), making->said.end());
    making->got.resize(making->said.size());
    making->members.resize(making->said.size());
    for (std::size_t first = 0, end; first < making->said.size(); first = end) {
      for (end = first; end < making->said.size() && making->said[end][0] == making->said[first][0];) ++end;
      if (making->said[first][0] == NCCL_SPLIT_NOCOLOR) continue;
      const auto meeting = std::make_shared<Meeting>(world().next_number++, static_cast<int>(end - first));
      for (std::size_t i = first; i < end; ++i) {
        making->got[static_cast<std::size_t>(making->said[i][2])] = meeting;
        making->members[static_cast<std::size_t>(making->said[i][2])] = static_cast<int>(i - first);
      }
    }
    world().changed.notify_all();
  } else if (!world().changed.wait_for(lock, kPatience, [&] { return !making->got.empty(); })) {
    return refuse(where + ": not all members came", ncclSystemError);
  }
  const auto rank = static_cast<std::size_t>(own[2]);
  *comm = nullptr;
  if (!making->got[rank]) return ncclSuccess;
  world().all.push_back(std::make_unique<ncclComm>(own[3], making->members[rank], making->got[rank]));
  *comm = world().all.back().get();
  made(*comm, "communicator " + std::to_string(making->got[rank]->number()));
  return ncclSuccess;
}

bool gone(ncclComm_t comm) {
  std::lock_guard lock(world().mutex);
  return comm->gone;
}

// What is issued on one communicator and stream together runs there together.
void launch(std::vector<Issue> issues) {
  while (!issues.empty()) {
    const ncclComm_t comm = issues.front().comm;
    const cudaStream_t stream = issues.front().stream;
    std::vector<Meeting::Ticket> tickets;
    std::erase_if(issues, [&](const Issue& issue) {
      if (issue.comm != comm || issue.stream != stream) return false;
      tickets.push_back(comm->meeting->issue(comm->member, issue.operation));
      return true;
    });
    {
      std::lock_guard lock(world().mutex);
      ++comm->under_way;
    }
    stream->give([comm, tickets = std::move(tickets)] {
      comm->meeting->run(comm->member, tickets, comm->stop);
      std::lock_guard lock(world().mutex);
      --comm->under_way;
      world().changed.notify_all();
    });
  }
}

ncclResult_t issue(const char* name, Operation operation, std::size_t count, ncclComm_t comm, cudaStream_t stream) {
  if (!comm) return refuse(std::string(name) + " on no communicator");
  operation.bytes = count * (operation.type == ncclInt8 ? 1 : sizeof(float));
  if (const ncclResult_t code = note(comm->device, name,
                                     {.comm = comm->meeting->number(), .peer = operation.peer,
                                      .bytes = static_cast<long long>(operation.bytes), .stream = stream})) {
    if (group.depth > 0) group.error = code;
    return code;
  }
  const std::string call = std::string(name) + " on communicator " + std::to_string(comm->meeting->number());
  if (gone(comm)) return refuse(call + ", which is destroyed or aborted");
  if (stream->device != comm->device) return refuse(call + " in a stream of another device");
  const bool addressed = operation.kind == Kind::send || operation.kind == Kind::receive ||
                         operation.kind == Kind::broadcast;
  if (addressed && (operation.peer < 0 || operation.peer >= comm->meeting->members()))
    return refuse(call + " with member " + std::to_string(operation.peer));
  const bool reads = operation.kind != Kind::receive, writes = operation.kind != Kind::send;
  if (operation.bytes != 0 && ((reads && !operation.from) || (writes && !operation.to)))
    return refuse(call + " without a buffer");
  group.issues.push_back({comm, stream, operation});
  if (group.depth == 0) launch(std::exchange(group.issues, {}));
  return ncclSuccess;
}

ncclResult_t sum(const char* name, Operation operation, std::size_t count, ncclRedOp_t op, ncclComm_t comm,
                 cudaStream_t stream) {
  if (op != ncclSum || operation.type != ncclFloat)
    return refuse(std::string(name) + " of what is not a sum of floats");
  return issue(name, operation, count, comm, stream);
}

// Destroyed or aborted, once.
ncclResult_t end(const char* name, ncclComm_t comm, bool abort) {
  if (!comm) return refuse(std::string(name) + " of no communicator");
  if (const ncclResult_t code = note(comm->device, name, {.comm = comm->meeting->number()})) return code;
  if (group.depth > 0) return refuse(std::string(name) + " inside of a group", ncclInvalidUsage);
  {
    std::unique_lock lock(world().mutex);
    if (std::exchange(comm->gone, true)) return refuse(std::string(name) + " of what is destroyed or aborted");
    if (!abort && !world().changed.wait_for(lock, kPatience, [comm] { return comm->under_way == 0; }))
      return refuse("a communicator is destroyed whose work never ends", ncclSystemError);
  }
  given_back(comm);
  if (abort) comm->meeting->stop(comm->stop);
  return ncclSuccess;
}

}  // namespace
}  // namespace fake

using fake::Kind;

const char* ncclGetErrorString(ncclResult_t code) {
  switch (code) {
    case ncclSuccess: return "no error";
    case ncclSystemError: return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInvalidArgument: return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage: return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    default: return "internal error";
  }
}
const char* ncclGetLastError(ncclComm_t) { return "said by the fake"; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (const ncclResult_t code = fake::note(fake::current_device(), "ncclGetUniqueId")) return code;
  std::memset(id->internal, 0, sizeof id->internal);
  std::lock_guard lock(fake::world().mutex);
  std::strcpy(id->internal, ("id " + std::to_string(fake::world().next_id++)).c_str());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  const int device = fake::current_device();
  if (const ncclResult_t code = fake::note(device, "ncclCommInitRank", {.peer = rank})) return code;
  return fake::make(id.internal, ranks, {0, rank, rank, device}, comm);
}

ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t* comm, ncclConfig_t*) {
  if (const ncclResult_t code = fake::note(parent->device, "ncclCommSplit",
                                           {.comm = parent->meeting->number(), .peer = color, .bytes = key}))
    return code;
  if (fake::gone(parent)) return fake::refuse("ncclCommSplit of a communicator that is destroyed or aborted");
  const std::string where = "split " + std::to_string(parent->splits++) + " of communicator " +
                            std::to_string(parent->meeting->number());
  return fake::make(where, parent->meeting->members(), {color, key, parent->member, parent->device}, comm);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) { return fake::end("ncclCommDestroy", comm, false); }
ncclResult_t ncclCommAbort(ncclComm_t comm) { return fake::end("ncclCommAbort", comm, true); }

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  if (fake::gone(comm)) return fake::refuse("ncclCommGetAsyncError of what is destroyed or aborted");
  std::lock_guard lock(fake::state().mutex);
  const auto found = fake::state().async_errors.find(comm->device);
  *error = found == fake::state().async_errors.end() ? ncclSuccess : static_cast<ncclResult_t>(found->second);
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  if (const ncclResult_t code = fake::note(fake::current_device(), "ncclGroupStart")) return code;
  if (fake::group.depth++ == 0) {
    ++fake::group.number;
    fake::group.error = ncclSuccess;
  }
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  const ncclResult_t code = fake::note(fake::current_device(), "ncclGroupEnd");
  if (fake::group.depth == 0) return fake::refuse("ncclGroupEnd without ncclGroupStart", ncclInvalidUsage);
  if (--fake::group.depth > 0) return code;
  auto issues = std::exchange(fake::group.issues, {});
  if (code != ncclSuccess || fake::group.error != ncclSuccess)
    return code != ncclSuccess ? code : fake::group.error;  // nothing of the group is launched
  fake::launch(std::move(issues));
  return ncclSuccess;
}

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return fake::issue("ncclSend", {.kind = Kind::send, .from = data, .type = type, .peer = peer}, count, comm, stream);
}
ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return fake::issue("ncclRecv", {.kind = Kind::receive, .to = data, .type = type, .peer = peer}, count, comm, stream);
}
ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return fake::issue("ncclAllGather", {.kind = Kind::all_gather, .from = from, .to = to, .type = type}, count, comm,
                     stream);
}
ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return fake::issue("ncclBroadcast", {.kind = Kind::broadcast, .from = from, .to = to, .type = type, .peer = root},
                     count, comm, stream);
}
ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return fake::sum("ncclAllReduce", {.kind = Kind::all_reduce, .from = from, .to = to, .type = type}, count, op, comm,
                   stream);
}
ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  return fake::sum("ncclReduceScatter", {.kind = Kind::reduce_scatter, .from = from, .to = to, .type = type}, count,
                   op, comm, stream);
}
