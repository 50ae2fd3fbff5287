// The generated pages of docs/, from the tables that the program itself runs on.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/schedule_files.hpp"

namespace fem::compiler {

struct ReferencePage {
  std::string file;  // "actions.md"
  std::string text;
};

// actions.md, settings.md, invariants.md, passes.md and schedules.md, which describes every file of the folders. Empty
// after errors in a schedule file.
std::optional<std::vector<ReferencePage>> reference_pages(const ScheduleFolders& folders, ir::DiagnosticSink& sink);

// "1 chunk", "2 chunks (2 or more)", "2 chunks (1 to 4)".
std::string chunks_text(const ChunkRange& chunks);

}  // namespace fem::compiler
