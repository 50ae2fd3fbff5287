// A machine as the cost model sees it: rates, links and, where a run has measured them, times of actions.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "ir/units.hpp"

namespace fem::passes {

// Number formats that a machine multiplies matrices in.
enum class NumberFormat : std::uint8_t { fp32, bf16, fp16 };
inline constexpr int kNumberFormats = 3;
std::string_view name(NumberFormat format);

// The format of precision.compute.
NumberFormat number_format(const ir::Settings& settings);

// Links of a machine, from the nearest to the farthest.
enum class LinkLevel : std::uint8_t { InNode, BetweenNodes };
inline constexpr int kLinkLevels = 2;
std::string_view name(LinkLevel level);  // "in_node", "between_nodes"

struct Link {
  double latency = 0;    // seconds from the start of a message to its first byte
  double bandwidth = 0;  // bytes per second and rank, one direction
};

// Measured seconds of one microbatch; what is missing is estimated. A whole backward is `backward`, else I + W.
struct PassTimes {
  std::optional<double> forward, input, weight, backward;
};

struct MeasuredTimes {
  std::array<PassTimes, ir::kUnitKinds> unit;  // by kind of unit
  std::map<int, PassTimes> stage;              // by stage: replaces the sum over its units
  std::optional<double> optimizer;             // one OptimizerStep, of any stage
  std::optional<double> p2p;                   // one message between pipeline ranks, of any size
};

struct HardwareProfile {
  std::string name;
  std::array<double, kNumberFormats> matmul{};  // peak floating-point operations per second of one rank
  double efficiency = 1;                        // share of the peak that matrix products reach, above 0, at most 1
  double memory_bandwidth = 0;                  // bytes per second of one rank's memory
  double memory_capacity = 0;                   // bytes that one rank may use; 0: not known
  double host_bandwidth = 0;                    // bytes per second between a rank's memory and the host's
  double overhead = 0;                          // seconds that each action costs beside its work
  std::int64_t node_size = 1;                   // ranks of a node
  std::array<Link, kLinkLevels> links;
  MeasuredTimes measured;

  double matmul_peak(NumberFormat format) const { return matmul[static_cast<std::size_t>(format)]; }
  const Link& link(LinkLevel level) const { return links[static_cast<std::size_t>(level)]; }
};

}  // namespace fem::passes
