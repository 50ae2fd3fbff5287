#include "executor/weights/file_io.hpp"

#include <gtest/gtest.h>

#include "tests/data/support.hpp"
#include "tests/weights/file_limit.hpp"

namespace fem::exec {
namespace {

using testing::expect_error;
using testing::FileSizeLimit;
using testing::get_bytes;
using testing::put_bytes;
using testing::TemporaryFolder;

TEST(AtomicFile, AppearsOnlyWhenCommitted) {
  const TemporaryFolder folder;
  const std::string path = folder / "file";
  {
    AtomicFile file(path);
    file.write("half");
    EXPECT_FALSE(path_exists(path));
  }
  EXPECT_TRUE(list_folder(folder.path()).empty()) << "what was not committed is gone";
  {
    AtomicFile file(path);
    file.write("one ");
    file.write("two");
    file.commit();
  }
  EXPECT_EQ(get_bytes(path), "one two");
  {
    AtomicFile file(path);
    file.write("other");
  }
  EXPECT_EQ(get_bytes(path), "one two") << "the old file stays when the new one is given up";
  write_file(path, "new");
  EXPECT_EQ(get_bytes(path), "new");
  EXPECT_EQ(list_folder(folder.path()).size(), 1u);
}

TEST(AtomicFile, AFullDiskIsNoticedWhenWritten) {
  const TemporaryFolder folder;
  const std::string path = folder / "file", big(1 << 20, 'x');
  write_file(path, "old");
  const FileSizeLimit limit(4096);
  expect_error([&] { write_file(path, big); }, {"cannot write " + path, "File too large"});
  EXPECT_EQ(get_bytes(path), "old");
  EXPECT_EQ(list_folder(folder.path()).size(), 1u) << "a temporary file stays behind";
}

TEST(AtomicFile, APlaceThatCannotBeWrittenIsNamed) {
  const TemporaryFolder folder;
  expect_error([&] { write_file(folder / "no/file", "x"); }, {folder / "no/file", "No such file or directory"});
  put_bytes(folder / "plain", "x");
  expect_error([&] { write_file(folder / "plain/file", "x"); }, {folder / "plain/file", "Not a directory"});
  expect_error([&] { make_folder(folder / "plain/inside"); }, {folder / "plain/inside", "Not a directory"});
  // procfs takes no new files, whoever asks.
  expect_error([&] { write_file("/proc/femtotron", "x"); }, {"/proc/femtotron"});
  make_folder(folder / "taken/inside");
  expect_error([&] { write_file(folder / "taken", "x"); }, {folder / "taken", "Is a directory"});
}

TEST(MappedFile, GivesAllBytesAndNamesWhatIsMissing) {
  const TemporaryFolder folder;
  put_bytes(folder / "file", std::string("a\0b", 3));
  const MappedFile file(folder / "file");
  EXPECT_EQ(file.text(), std::string_view("a\0b", 3));
  EXPECT_EQ(file.bytes().size(), 3u);
  put_bytes(folder / "empty", "");
  EXPECT_TRUE(MappedFile(folder / "empty").bytes().empty());
  expect_error([&] { MappedFile(folder / "none"); }, {folder / "none", "No such file or directory"});
  expect_error([&] { MappedFile(folder.path()); }, {folder.path().string(), "Is a directory"});
}

TEST(MappedFile, MovesWithItsBytes) {
  const TemporaryFolder folder;
  put_bytes(folder / "a", "aaa");
  put_bytes(folder / "b", "bb");
  MappedFile a(folder / "a"), b(folder / "b");
  MappedFile moved(std::move(a));
  EXPECT_EQ(moved.text(), "aaa");
  moved = std::move(b);
  EXPECT_EQ(moved.text(), "bb");
  EXPECT_EQ(moved.path(), folder / "b");
}

TEST(Folders, AreListedRenamedAndRemoved) {
  const TemporaryFolder folder;
  make_folder(folder / "a/b");
  write_file(folder / "a/b/x", "12345");
  EXPECT_EQ(file_bytes(folder / "a/b/x"), 5u);
  rename_path(folder / "a", folder / "c");
  EXPECT_EQ(list_folder(folder.path()), (std::vector<std::filesystem::path>{folder / "c"}));
  remove_tree(folder / "c");
  remove_tree(folder / "c");
  EXPECT_TRUE(list_folder(folder.path()).empty());
  expect_error([&] { list_folder(folder / "c"); }, {folder / "c"});
  expect_error([&] { rename_path(folder / "c", folder / "d"); }, {folder / "c", folder / "d"});
}

}  // namespace
}  // namespace fem::exec
