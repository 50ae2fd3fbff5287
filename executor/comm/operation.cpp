#include "executor/comm/operation.hpp"

namespace fem::exec {

std::string_view name(OperationKind kind) {
  switch (kind) {
    case OperationKind::none: return "nothing";
    case OperationKind::exchange: return "exchange";
    case OperationKind::all_gather: return "all_gather";
    case OperationKind::all_to_all: return "all_to_all";
    case OperationKind::broadcast: return "broadcast";
    case OperationKind::barrier: return "barrier";
    case OperationKind::all_reduce: return "all_reduce";
    case OperationKind::reduce_scatter: return "reduce_scatter";
  }
  return "?";
}

std::string text(const Operation& operation) {
  std::string text(name(operation.kind));
  switch (operation.kind) {
    case OperationKind::none: break;
    case OperationKind::exchange:
      if (operation.halves > 1) text += " of " + std::to_string(operation.halves) + " halves, first:";
      text += std::string(operation.send ? " send" : " receive") + " tag " + std::to_string(operation.tag) + ", " +
              std::to_string(operation.bytes) + " bytes" + (operation.send ? " to rank " : " from rank ") +
              std::to_string(operation.peer);
      break;
    case OperationKind::all_gather:
    case OperationKind::all_to_all:
    case OperationKind::all_reduce:
    case OperationKind::reduce_scatter:
      text += " over " + std::string(ir::name(operation.group)) + " with blocks of " +
              std::to_string(operation.bytes) + " bytes";
      break;
    case OperationKind::broadcast:
      text += " over " + std::string(ir::name(operation.group)) + " of " + std::to_string(operation.bytes) +
              " bytes from member " + std::to_string(operation.peer);
      break;
    case OperationKind::barrier: text += " over " + std::string(ir::name(operation.group)); break;
  }
  return text;
}

Operation OperationRecord::load() const noexcept {
  Operation operation;
  operation.kind = kind_.load(std::memory_order_relaxed);
  operation.group = group_.load(std::memory_order_relaxed);
  operation.send = send_.load(std::memory_order_relaxed);
  operation.peer = peer_.load(std::memory_order_relaxed);
  operation.tag = tag_.load(std::memory_order_relaxed);
  operation.bytes = bytes_.load(std::memory_order_relaxed);
  operation.halves = halves_.load(std::memory_order_relaxed);
  return operation;
}

std::string_view channel_name(std::size_t channel) {
  return channel == kBarrierChannel ? std::string_view("barrier") : ir::name(static_cast<ir::Lane>(channel));
}

std::string text(const OperationRecords& records) {
  std::string all;
  for (std::size_t channel = 0; channel < kChannels; ++channel) {
    const Operation operation = records[channel].load();
    if (operation.kind == OperationKind::none) continue;
    if (!all.empty()) all += ", ";
    all += text(operation);
    if (channel != kBarrierChannel) all += " (lane " + std::string(channel_name(channel)) + ")";
  }
  return all.empty() ? "doing nothing in the communicator" : "in " + all;
}

}  // namespace fem::exec
