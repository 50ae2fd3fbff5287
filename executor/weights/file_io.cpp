#include "executor/weights/file_io.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "executor/error.hpp"

namespace fem::exec {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void system_error(const std::string& what, const fs::path& path, int error) {
  throw ExecutionError("cannot " + what + " " + path.string() + ": " + std::generic_category().message(error));
}

fs::path folder_of(const fs::path& path) {
  const fs::path folder = path.parent_path();
  return folder.empty() ? fs::path(".") : folder;
}

// A rename is safe against a power cut only when the folder's own entry has reached the disk.
void flush_folder(const fs::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) system_error("open folder", folder, errno);
  const int error = ::fsync(descriptor) == 0 ? 0 : errno;
  ::close(descriptor);
  // Some file systems have no way to flush a folder and say so with EINVAL; there is nothing to be done then.
  if (error != 0 && error != EINVAL) system_error("flush folder", folder, error);
}

}  // namespace

MappedFile::MappedFile(const fs::path& path) : path_(path.string()) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) system_error("open", path, errno);
  struct stat status {};
  int error = ::fstat(descriptor, &status) == 0 ? 0 : errno;
  if (error == 0 && !S_ISREG(status.st_mode)) error = S_ISDIR(status.st_mode) ? EISDIR : EINVAL;
  if (error == 0 && status.st_size > 0) {  // an empty map is refused by the system; an empty file is no error here
    void* data = ::mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (data == MAP_FAILED) {
      error = errno;
    } else {
      data_ = static_cast<const std::byte*>(data);
      size_ = static_cast<std::size_t>(status.st_size);
    }
  }
  ::close(descriptor);
  if (error != 0) system_error("read", path, error);
}

MappedFile::~MappedFile() { unmap(); }

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this != &other) {
    unmap();
    path_ = std::move(other.path_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

void MappedFile::unmap() noexcept {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

AtomicFile::AtomicFile(const fs::path& path) : path_(path), temporary_(path) {
  temporary_ += ".tmp-" + std::to_string(::getpid()) + "-" + std::to_string(::gettid());
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) system_error("create", path_, errno);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, std::size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(descriptor_, at, bytes);
    if (written < 0) {
      if (errno == EINTR) continue;
      system_error("write", path_, errno);
    }
    at += written;
    bytes -= static_cast<std::size_t>(written);
  }
}

void AtomicFile::commit() {
  if (::fsync(descriptor_) != 0) system_error("flush", path_, errno);
  if (::close(std::exchange(descriptor_, -1)) != 0) system_error("close", path_, errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) system_error("rename a new file to", path_, errno);
  temporary_.clear();
  flush_folder(folder_of(path_));
}

void write_file(const fs::path& path, std::string_view content) {
  AtomicFile file(path);
  file.write(content);
  file.commit();
}

void make_folder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) system_error("create folder", path, error.value());
  flush_folder(folder_of(path));
}

void rename_path(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) system_error("rename " + from.string() + " to", to, errno);
  flush_folder(folder_of(to));
}

bool path_exists(const fs::path& path) {
  std::error_code error;
  const bool there = fs::exists(path, error);
  if (error) system_error("look up", path, error.value());
  return there;
}

std::uint64_t file_bytes(const fs::path& path) {
  std::error_code error;
  const std::uintmax_t bytes = fs::file_size(path, error);
  if (error) system_error("take the size of", path, error.value());
  return bytes;
}

std::vector<fs::path> list_folder(const fs::path& path) {
  std::error_code error;
  std::vector<fs::path> entries;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error))
    entries.push_back(at->path());
  if (error) system_error("list folder", path, error.value());
  std::ranges::sort(entries);
  return entries;
}

void remove_tree(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) system_error("remove", path, error.value());
}

void field_error(const std::string& file, const std::string& field, const std::string& found,
                 const std::string& expected) {
  throw ExecutionError(file + ": " + field + ": found " + found + ", expected " + expected);
}

}  // namespace fem::exec
