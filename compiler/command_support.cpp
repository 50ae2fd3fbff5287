#include "compiler/command_support.hpp"

#include <cerrno>
#include <cstring>
#include <memory>
#include <ostream>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "ir/verify.hpp"

namespace fem::compiler {
namespace {

std::string system_reason() { return std::strerror(errno ? errno : EIO); }

std::string counted(std::size_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

// Owns a file descriptor.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  bool open() const { return fd_ >= 0; }
  bool write(std::string_view text) {
    while (!text.empty()) {
      const ssize_t written = ::write(fd_, text.data(), text.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return false;
      text.remove_prefix(static_cast<std::size_t>(written));
    }
    return true;
  }
  bool sync() { return ::fsync(fd_) == 0; }
  bool close() { return ::close(std::exchange(fd_, -1)) == 0; }

 private:
  int fd_;
};

}  // namespace

int report(const ir::DiagnosticSink& sink, Streams streams) {
  streams.err << sink.text();
  return sink.has_errors() ? kDiagnosed : kSuccess;
}

int finish_output(Streams streams) {
  streams.out.flush();
  if (streams.out) return kSuccess;
  streams.err << "error: cannot write to the standard output\n";
  return kRuntime;
}

SourcePtr read_source(const std::string& path, Streams streams) {
  std::string reason;
  auto text = read_text_file(path, reason);
  if (text) return std::make_shared<const ir::SourceText>(path, std::move(*text));
  streams.err << fmt::format("{}: error: cannot read: {}\n", path, reason);
  return nullptr;
}

std::optional<PlanFile> read_plan_file(const std::string& path, Streams streams) {
  SourcePtr source = read_source(path, streams);
  if (!source) return std::nullopt;
  ir::DiagnosticSink sink;
  ir::PlanLocations locations;
  auto plan = ir::parse_plan(*source, sink, &locations);
  const bool ok = plan && ir::verify(*plan, sink, {source.get(), &locations});
  report(sink, streams);
  if (!ok) return std::nullopt;
  return PlanFile{std::move(source), std::move(*plan)};
}

std::string write_file(const std::string& path, std::string_view text) {
  struct stat status {};
  const bool exists = ::stat(path.c_str(), &status) == 0;
  if (exists && S_ISDIR(status.st_mode)) return "it is a folder";
  const bool direct = exists && !S_ISREG(status.st_mode);
  const std::string name = direct ? path : fmt::format("{}.{}.tmp", path, ::getpid());
  Descriptor file(::open(name.c_str(), direct ? O_WRONLY | O_CLOEXEC : O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file.open()) return system_reason();
  bool ok = file.write(text) && (direct || file.sync());
  ok = ok && file.close();
  if (direct) return ok ? std::string() : system_reason();
  ok = ok && ::rename(name.c_str(), path.c_str()) == 0;
  if (ok) return {};
  std::string reason = system_reason();
  ::unlink(name.c_str());
  return reason;
}

int write_output(const std::optional<std::string>& output, std::string_view text, std::string_view summary,
                 Streams streams) {
  if (!output) {
    streams.out << text;
    return finish_output(streams);
  }
  const std::string reason = write_file(*output, text);
  if (!reason.empty()) {
    streams.err << fmt::format("{}: error: cannot write: {}\n", *output, reason);
    return kRuntime;
  }
  streams.out << fmt::format("{}: {}\n", *output, summary);
  return finish_output(streams);
}

std::string contents(const ir::Plan& plan) {
  std::size_t count = 0;
  for (const ir::Program& program : plan.programs) {
    for (const ir::RankProgram& rank : program.ranks) {
      for (std::size_t i = 0; i < rank.actions.size(); i += ir::batch_size(rank.actions, i)) ++count;
    }
  }
  return fmt::format("{}, {}, {}", counted(plan.programs.size(), "program"),
                     counted(static_cast<std::size_t>(plan.settings.parallel.pp), "pipeline rank"),
                     counted(count, "action"));
}

}  // namespace fem::compiler
