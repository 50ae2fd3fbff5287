// Files: whole files by memory map, and writes that either appear complete under their name or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fem::exec {

// A file mapped read-only for the object's lifetime. Throws ExecutionError that names the path and the system's reason.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }

 private:
  void unmap() noexcept;

  std::string path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// A file in the making: bytes go to a temporary file in the same folder; commit() flushes it to the disk, renames it
// over `path` and flushes the folder. Destruction without commit() removes the temporary file and leaves `path` as it
// was.
// Every failure (disk full, quota, not writable) throws ExecutionError with the path and the system's reason.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, std::size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void commit();

 private:
  std::filesystem::path path_, temporary_;
  int descriptor_ = -1;
};

// One AtomicFile from open to commit.
void write_file(const std::filesystem::path& path, std::string_view content);

// Creates a folder and its parents, and flushes the folder that holds it.
void make_folder(const std::filesystem::path& path);

// Renames a folder or file within one file system and flushes the folder that holds `to`.
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to);

// Whether there is anything under that name. Unlike the standard library's, the three throw ExecutionError.
bool path_exists(const std::filesystem::path& path);
std::uint64_t file_bytes(const std::filesystem::path& path);
std::vector<std::filesystem::path> list_folder(const std::filesystem::path& path);  // sorted

// Removes a file or folder with all that it holds; no error where there is nothing.
void remove_tree(const std::filesystem::path& path);

// "FILE: FIELD: found FOUND, expected EXPECTED": what is wrong with a file's content.
[[noreturn]] void field_error(const std::string& file, const std::string& field, const std::string& found,
                              const std::string& expected);

}  // namespace fem::exec
