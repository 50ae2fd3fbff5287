// The ways to write an order down: one row and one file each.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "compiler/schedule.hpp"
#include "compiler/yaml.hpp"

namespace fem::compiler {

// Where an order is read from: the file, what stands under the order's key, and what the file said before.
struct OrderSource {
  const YamlFile& file;
  const YAML::Node& node;                                 // the value of the order's key
  const YAML::Node* walk;                                 // the value of the key `walk`, or null
  const Schedule& schedule;                               // all but the order
  std::shared_ptr<const OrderGenerator> start = nullptr;  // of `search`: the order beside it, or null
};

// A row: the key of the schedule file, and the function that reads what stands under it (null after diagnosed errors).
struct OrderKind {
  std::string_view key, doc;
  bool walks;     // the key `walk` may stand beside it
  bool improves;  // may stand beside another and begin with its order
  std::shared_ptr<const OrderGenerator> (*read)(const OrderSource& source, ir::DiagnosticSink& sink);
};
std::span<const OrderKind> order_kinds();

// Read `phases`: see order_phases.cpp.
std::shared_ptr<const OrderGenerator> read_phases(const OrderSource& source, ir::DiagnosticSink& sink);
// Read `priority`: see order_priority.cpp.
std::shared_ptr<const OrderGenerator> read_priority(const OrderSource& source, ir::DiagnosticSink& sink);
// Read `pattern`: see order_pattern.cpp.
std::shared_ptr<const OrderGenerator> read_pattern(const OrderSource& source, ir::DiagnosticSink& sink);
// Read `search`: see order_search.cpp.
std::shared_ptr<const OrderGenerator> read_search(const OrderSource& source, ir::DiagnosticSink& sink);
// Read `table`: see order_table.cpp.
std::shared_ptr<const OrderGenerator> read_table(const OrderSource& source, ir::DiagnosticSink& sink);

}  // namespace fem::compiler
