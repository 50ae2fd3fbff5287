#include "support.hpp"

#include <fstream>

namespace fem::compiler::test {

std::string TemporaryFolder::write(const std::string& name, const std::string& text) const {
  const std::filesystem::path file = path_ / name;
  std::filesystem::create_directories(file.parent_path());
  std::ofstream stream(file, std::ios::binary);
  stream << text;
  if (!stream.flush()) throw std::runtime_error("cannot write " + file.string());
  return file.string();
}

std::string TemporaryFolder::read(const std::string& name) const {
  std::string reason;
  auto text = read_text_file(path_ / name, reason);
  if (!text) throw std::runtime_error(name + ": " + reason);
  return std::move(*text);
}

}  // namespace fem::compiler::test
