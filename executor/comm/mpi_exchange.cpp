#include "executor/comm/mpi_exchange.hpp"

#include <algorithm>

#include "executor/comm/checks.hpp"
#include "executor/comm/mpi_support.hpp"
#include "executor/error.hpp"

namespace fem::exec {
namespace {

constexpr int kListTag = 0;
constexpr std::uint32_t kDataTags = 32767;  // every MPI has at least the tags 0 .. 32767

}  // namespace

void MpiExchange::open(MPI_Comm world) {
  check_mpi(MPI_Comm_dup(world, &comm_), "MPI_Comm_dup");
  int size = 1;
  check_mpi(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm_, &size), "MPI_Comm_size");
  sent_.assign(static_cast<std::size_t>(size), 0);
  listed_.assign(static_cast<std::size_t>(size), 0);
  arriving_.resize(static_cast<std::size_t>(size));
}

void MpiExchange::close() {
  if (comm_ != MPI_COMM_NULL) MPI_Comm_free(&comm_);
}

int MpiExchange::data_tag(std::uint32_t sequence) { return static_cast<int>(1 + sequence % kDataTags); }

void MpiExchange::start(std::span<const P2pHalf> halves) {
  pending_.clear();
  requests_.clear();
  lists_used_ = 0;
  unposted_ = 0;
  for (std::size_t i = 0; i < halves.size(); ++i) {
    const P2pHalf& half = halves[i];
    if (!half.send) {
      pending_.push_back({half});
      ++unposted_;
      continue;
    }
    const auto before = halves.first(i);
    const bool listed = std::any_of(before.begin(), before.end(),
                                    [&](const P2pHalf& other) { return other.send && other.peer == half.peer; });
    if (!listed) start_sends(halves, half.peer);
  }
}

void MpiExchange::start_sends(std::span<const P2pHalf> halves, int peer) {
  if (lists_used_ == lists_.size()) lists_.emplace_back();
  std::vector<Listed>& list = lists_[lists_used_++];
  list.clear();
  for (const P2pHalf& half : halves)
    if (half.send && half.peer == peer) list.push_back({half.tag, half.bytes});
  requests_.push_back(MPI_REQUEST_NULL);
  check_mpi(MPI_Isend(list.data(), static_cast<int>(list.size() * sizeof(Listed)), MPI_BYTE, peer, kListTag, comm_,
                      &requests_.back()),
            "MPI_Isend");
  for (const P2pHalf& half : halves) {
    if (!half.send || half.peer != peer) continue;
    const MpiBytes bytes(half.bytes);
    pending_.push_back({half, true, requests_.size()});
    requests_.push_back(MPI_REQUEST_NULL);
    check_mpi(MPI_Issend(half.data, bytes.count(), bytes.type(), peer,
                         data_tag(sent_[static_cast<std::size_t>(peer)]++), comm_, &requests_.back()),
              "MPI_Issend");
  }
}

bool MpiExchange::progress() {
  match();
  for (Pending& pending : pending_) {
    if (pending.posted) continue;
    if (read_list(pending.half.peer)) match();
    if (pending.posted || arriving_[static_cast<std::size_t>(pending.half.peer)].empty()) continue;
    const Arriving& left = arriving_[static_cast<std::size_t>(pending.half.peer)].front();
    throw ExecutionError("tags do not match: rank " + std::to_string(pending.half.peer) + " sends tag " +
                         std::to_string(left.listed.tag) + " of " + std::to_string(left.listed.bytes) +
                         " bytes, rank " + std::to_string(rank_) + " expects tag " +
                         std::to_string(pending.half.tag) + " of " + std::to_string(pending.half.bytes) + " bytes");
  }
  int done = 0;
  check_mpi(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE),
            "MPI_Testall");
  return done && unposted_ == 0;
}

// Posts a receive for every half whose tag is listed.
void MpiExchange::match() {
  if (unposted_ == 0) return;
  for (Pending& pending : pending_)
    if (!pending.posted) post_receive(pending);
}

void MpiExchange::post_receive(Pending& pending) {
  auto& arriving = arriving_[static_cast<std::size_t>(pending.half.peer)];
  const auto found = std::find_if(arriving.begin(), arriving.end(),
                                  [&](const Arriving& a) { return a.listed.tag == pending.half.tag; });
  if (found == arriving.end()) return;
  if (found->listed.bytes != pending.half.bytes)
    throw ExecutionError("sizes do not match: rank " + std::to_string(pending.half.peer) + " sends tag " +
                         std::to_string(found->listed.tag) + " of " + std::to_string(found->listed.bytes) +
                         " bytes, rank " + std::to_string(rank_) + " expects tag " +
                         std::to_string(pending.half.tag) + " of " + std::to_string(pending.half.bytes) + " bytes");
  const MpiBytes bytes(pending.half.bytes);
  pending.posted = true;
  pending.request = requests_.size();
  requests_.push_back(MPI_REQUEST_NULL);
  check_mpi(MPI_Irecv(pending.half.data, bytes.count(), bytes.type(), pending.half.peer, data_tag(found->sequence),
                      comm_, &requests_.back()),
            "MPI_Irecv");
  arriving.erase(found);
  --unposted_;
}

// Takes the peer's next list where one has arrived.
bool MpiExchange::read_list(int peer) {
  int arrived = 0;
  MPI_Status status;
  check_mpi(MPI_Iprobe(peer, kListTag, comm_, &arrived, &status), "MPI_Iprobe");
  if (!arrived) return false;
  int bytes = 0;
  check_mpi(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
  incoming_.resize(static_cast<std::size_t>(bytes) / sizeof(Listed));
  check_mpi(MPI_Recv(incoming_.data(), bytes, MPI_BYTE, peer, kListTag, comm_, MPI_STATUS_IGNORE), "MPI_Recv");
  const auto index = static_cast<std::size_t>(peer);
  for (const Listed& listed : incoming_) arriving_[index].push_back({listed, listed_[index]++});
  return true;
}

std::string MpiExchange::unfinished() const {
  std::string waiting;
  for (const Pending& pending : pending_) {
    if (pending.posted && requests_[pending.request] == MPI_REQUEST_NULL) continue;
    if (!waiting.empty()) waiting += "; ";
    waiting += text(pending.half);
  }
  return waiting;
}

void MpiExchange::cancel() {
  for (const Pending& pending : pending_)
    if (pending.posted && !pending.half.send && requests_[pending.request] != MPI_REQUEST_NULL)
      MPI_Cancel(&requests_[pending.request]);
}

}  // namespace fem::exec
