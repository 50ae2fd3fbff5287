#include "executor/metrics.hpp"

#include <cmath>
#include <string>

#include "executor/error.hpp"

namespace fem::exec {
namespace {

std::uint64_t mix(std::uint64_t hash, const at::Tensor& values) {
  const std::int64_t* data = values.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    hash = (hash ^ static_cast<std::uint64_t>(data[i])) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 32;
  }
  return hash;
}

std::string ranks_text(std::int64_t a, std::int64_t b) {
  return "rank " + std::to_string(a) + " and rank " + std::to_string(b);
}

}  // namespace

std::uint64_t hash_microbatch(const Microbatch& batch) {
  if (!batch.tokens.defined()) return 0;  // a dry run; where there are data, units refuse a batch without tokens
  const std::uint64_t hash = mix(mix(0xcbf29ce484222325ULL, batch.tokens), batch.targets);
  return hash == 0 ? 1 : hash;  // 0 means "not read here"
}

LossReduction::LossReduction(int microbatches, int pp, int replicas)
    : losses_(static_cast<std::size_t>(microbatches)),
      records_(static_cast<std::size_t>(microbatches)),
      last_stage_(records_.size()),
      message_(records_.size() + 1),
      gathered_(message_.size() * static_cast<std::size_t>(std::max(pp, replicas))),
      pp_(pp),
      replicas_(replicas) {}

void LossReduction::reset() {
  std::fill(losses_.begin(), losses_.end(), LossSum{});
  std::fill(records_.begin(), records_.end(), Record{});
}

void LossReduction::gather(Communicator& comm, ir::Group group, int members) {
  FEM_CHECK(comm.group_size(group) == members, "size of group " + std::string(ir::name(group)));
  comm.all_gather(group, message_.data(), gathered_.data(), message_.size() * sizeof(Entry));
  check_heads(members);
}

void LossReduction::check_heads(int members) const {
  const Head& first = gathered(0, 0).head;
  for (int i = 1; i < members; ++i) {
    const Head& other = gathered(i, 0).head;
    if (other.step != first.step)
      throw ExecutionError(ranks_text(first.rank, other.rank) + " are at steps " + std::to_string(first.step) +
                           " and " + std::to_string(other.step));
    if (other.norm_bits != first.norm_bits)
      throw ExecutionError(ranks_text(first.rank, other.rank) +
                           " found different gradient norms in the step before: their replicas have drifted apart");
  }
}

std::int64_t LossReduction::stops(int members) const {
  std::int64_t count = 0;
  for (int i = 0; i < members; ++i) count += gathered(i, 0).head.stop;
  return count;
}

void LossReduction::merge_pipeline() {
  for (std::size_t m = 0; m < records_.size(); ++m) {
    Record sum;
    for (int i = 0; i < pp_; ++i) {
      const Record& r = gathered(i, 1 + m).record;
      sum.loss += r.loss;  // at most one of them is not zero, so this is exact
      sum.tokens += r.tokens;
      sum.first_stage ^= r.first_stage;
      sum.last_stage ^= r.last_stage;
      if (r.last_stage != 0) last_stage_[m] = i;
    }
    if (sum.first_stage != sum.last_stage)
      throw ExecutionError("the first stage and the last stage read different samples for microbatch m" +
                           std::to_string(m));
    message_[1 + m].record = sum;
  }
}

StepMetrics LossReduction::reduce(Communicator& comm, std::int64_t step, std::uint64_t norm_bits, bool stop) {
  message_[0].head = {step, norm_bits, stop ? 1 : 0, comm.rank()};
  for (std::size_t m = 0; m < records_.size(); ++m) {
    records_[m].loss = losses_[m].loss;
    records_[m].tokens = losses_[m].tokens;
    message_[1 + m].record = records_[m];
  }
  gather(comm, ir::Group::pp, pp_);
  merge_pipeline();
  message_[0].head.stop = stops(pp_);
  gather(comm, ir::Group::dp_cp, replicas_);

  StepMetrics metrics;
  metrics.stop = stops(replicas_) > 0;
  for (int i = 0; i < replicas_; ++i)
    for (std::size_t m = 0; m < records_.size(); ++m) {
      const Record& r = gathered(i, 1 + m).record;
      metrics.loss_sum += r.loss;
      metrics.tokens += r.tokens;
    }
  return metrics;
}

std::string LossReduction::not_finite(const Topology& topology) const {
  for (int i = 0; i < replicas_; ++i)
    for (std::size_t m = 0; m < records_.size(); ++m)
      if (!std::isfinite(gathered(i, 1 + m).record.loss)) {
        const int first = topology.rank({.pp = last_stage_[m]});
        const int rank = topology.members(ir::Group::dp_cp, first)[static_cast<std::size_t>(i)];
        return "loss of microbatch m" + std::to_string(m) + " on " + topology.rank_text(rank);
      }
  return {};
}

}  // namespace fem::exec
