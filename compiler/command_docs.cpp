#include <filesystem>
#include <ostream>

#include <fmt/format.h>

#include "compiler/command_support.hpp"
#include "compiler/reference_pages.hpp"

namespace fem::compiler {

int docs_command(const std::string& folder, const ScheduleFolders& folders, Streams streams) {
  ir::DiagnosticSink sink;
  const auto pages = reference_pages(folders, sink);
  report(sink, streams);
  if (!pages) return kDiagnosed;
  for (const ReferencePage& page : *pages) {
    const std::string path = (std::filesystem::path(folder) / page.file).string();
    const std::string reason = write_file(path, page.text);
    if (!reason.empty()) {
      streams.err << fmt::format("{}: error: cannot write: {}\n", path, reason);
      return kRuntime;
    }
    streams.out << path << "\n";
  }
  return finish_output(streams);
}

}  // namespace fem::compiler
