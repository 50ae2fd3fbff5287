#include "executor/data/indexed_dataset.hpp"

#include <random>

#include <gmock/gmock.h>

#include "tests/data/support.hpp"

namespace fem::exec {
namespace {

using namespace std::string_literals;
using testing::expect_error;
using testing::get_bytes;
using testing::put_bytes;
using testing::raw;
using testing::TemporaryFolder;
using Tokens = std::vector<std::int64_t>;

// Two documents, the first of two sequences: {1, 2, 3} {65000} | {7, 300}, as u16. Written out byte by byte from the
// description of the format.
const std::string kIdx =
    "MMIDIDX\0\0"s                                                     // magic, 0
    "\x01\0\0\0\0\0\0\0"                                               // version, 9
    "\x08"                                                             // type code u16, 17
    "\x03\0\0\0\0\0\0\0"                                               // sequences, 18
    "\x03\0\0\0\0\0\0\0"                                               // boundaries, 26
    "\x03\0\0\0\x01\0\0\0\x02\0\0\0"                                   // lengths, 34
    "\0\0\0\0\0\0\0\0\x06\0\0\0\0\0\0\0\x08\0\0\0\0\0\0\0"             // offsets, 46
    "\0\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0"s;           // boundaries, 70
const std::string kBin = "\x01\0\x02\0\x03\0\xe8\xfd\x07\0\x2c\x01"s;  // 65000 = 0xfde8, 300 = 0x12c
const Tokens kTokens{1, 2, 3, 65000, 7, 300};
constexpr std::int64_t kVocab = 65400;

Tokens all_tokens(const IndexedDataset& data) {
  Tokens tokens(static_cast<std::size_t>(data.tokens()), -1);
  data.read(0, tokens);
  return tokens;
}

class IndexedDatasetTest : public ::testing::Test {
 protected:
  void put(const std::string& idx, const std::string& bin) {
    put_bytes(prefix + ".idx", idx);
    put_bytes(prefix + ".bin", bin);
  }
  IndexedDataset open(std::int64_t vocab = kVocab) { return IndexedDataset(prefix, vocab); }

  TemporaryFolder folder;
  std::string prefix = folder / "text";
};

TEST_F(IndexedDatasetTest, ReadsAFileWrittenByHand) {
  put(kIdx, kBin);
  const IndexedDataset data = open();
  EXPECT_EQ(data.type(), TokenType::U16);
  EXPECT_EQ(data.tokens(), 6);
  EXPECT_EQ(data.sequences(), 3);
  EXPECT_EQ(data.documents(), 2);
  EXPECT_EQ(data.sequence_length(0), 3);
  EXPECT_EQ(data.sequence_length(2), 2);
  EXPECT_EQ(data.document_boundary(1), 2);
  EXPECT_EQ(data.document_boundary(2), 3);
  EXPECT_EQ(all_tokens(data), kTokens);
  EXPECT_TRUE(data.check_tokens());
  EXPECT_FALSE(data.check_tokens(5)) << "6 tokens are more than the limit";
  Tokens middle(3);
  data.read(2, middle);
  EXPECT_EQ(middle, (Tokens{3, 65000, 7}));
}

TEST_F(IndexedDatasetTest, AcceptsThePathOfEitherFile) {
  put(kIdx, kBin);
  EXPECT_EQ(IndexedDataset(prefix + ".idx", kVocab).tokens(), 6);
  EXPECT_EQ(IndexedDataset(prefix + ".bin", kVocab).tokens(), 6);
}

template <typename T>
std::string bin_of(const Tokens& tokens) {
  std::string bytes;
  for (const std::int64_t token : tokens) bytes += raw(static_cast<T>(token));
  return bytes;
}

TEST_F(IndexedDatasetTest, ReadsEveryIntegerType) {
  const Tokens tokens{0, 1, 127};
  const std::pair<TokenType, std::string> cases[] = {
      {TokenType::U8, bin_of<std::uint8_t>(tokens)},  {TokenType::I8, bin_of<std::int8_t>(tokens)},
      {TokenType::I16, bin_of<std::int16_t>(tokens)}, {TokenType::I32, bin_of<std::int32_t>(tokens)},
      {TokenType::I64, bin_of<std::int64_t>(tokens)}, {TokenType::U16, bin_of<std::uint16_t>(tokens)},
  };
  for (const auto& [type, bin] : cases) {
    put("MMIDIDX\0\0"s + raw<std::uint64_t>(1) + raw(static_cast<std::uint8_t>(type)) + raw<std::uint64_t>(1) +
            raw<std::uint64_t>(2) + raw<std::int32_t>(3) + raw<std::int64_t>(0) + raw<std::int64_t>(0) +
            raw<std::int64_t>(1),
        bin);
    const IndexedDataset data = open();
    EXPECT_EQ(data.type(), type);
    EXPECT_EQ(all_tokens(data), tokens) << name(type);
  }
}

TEST_F(IndexedDatasetTest, EachCorruptedFieldIsNamedWithBothValues) {
  struct Case {
    std::size_t at;
    std::string bytes;
    std::vector<std::string> words;
  };
  const Case cases[] = {
      {0, "X", {"text.idx: magic", "XMIDIDX", "MMIDIDX"}},
      {9, "\x02", {"text.idx: version: found 2, expected 1"}},
      {17, "\x09", {"text.idx: type code: found 9, expected 1 to 8"}},
      {17, "\0"s, {"text.idx: type code: found 0, expected 1 to 8"}},
      {17, "\x07", {"text.idx: type code: found 7 (f32), expected a type of integers"}},
      {17, "\x06", {"text.idx: type code: found 6 (f64), expected a type of integers"}},
      {17, "\x04", {"text.idx: offset of sequence 1: found 6, expected 12"}},
      {18, "\0"s, {"text.idx: sequences: found 0, expected 1 to 7"}},
      {18, "\xff\xff\xff\xff\xff\xff\xff\xff", {"text.idx: sequences: found 18446744073709551615, expected 1 to 7"}},
      {18, "\x02", {"text.idx: size: found 94 bytes, expected 82 for 2 sequences and 3"}},
      {26, "\x01", {"text.idx: document boundaries: found 1, expected 2 to 11"}},
      {26, "\0\0\0\0\0\0\0\x80"s, {"text.idx: document boundaries: found 9223372036854775808, expected 2 to 11"}},
      {26, "\x02", {"text.idx: size: found 94 bytes, expected 86 for 3 sequences and 2"}},
      {34, "\xff\xff\xff\xff", {"text.idx: length of sequence 0: found -1, expected 0 or more"}},
      {34, "\x04", {"text.idx: offset of sequence 1: found 6, expected 8"}},
      {46, "\x02", {"text.idx: offset of sequence 0: found 2, expected 0"}},
      {54, "\x05", {"text.idx: offset of sequence 1: found 5, expected 6"}},
      {62, "\x0a", {"text.idx: offset of sequence 2: found 10, expected 8"}},
      {42, "\x03", {"text.bin: size: found 12 bytes, expected 14 for the 7 u16 tokens"}},
      {70, "\x01", {"text.idx: document boundary 0: found 1, expected 0"}},
      {78, "\x04", {"text.idx: document boundary 1: found 4, expected 0 to 3"}},
      {78, "\xff\xff\xff\xff\xff\xff\xff\xff", {"text.idx: document boundary 1: found -1, expected 0 to 3"}},
      {86, "\x01", {"text.idx: document boundary 2: found 1, expected 2 to 3"}},
      {86, "\x02", {"text.idx: last document boundary: found 2, expected 3"}},
  };
  for (const Case& c : cases) {
    std::string idx = kIdx;
    idx.replace(c.at, c.bytes.size(), c.bytes);
    put(idx, kBin);
    SCOPED_TRACE("byte " + std::to_string(c.at));
    for (const std::string& word : c.words) expect_error([&] { open(); }, {word});
  }
}

TEST_F(IndexedDatasetTest, EveryTruncationAndExtensionIsRefused) {
  for (std::size_t size = 0; size < kIdx.size(); ++size) {
    put(kIdx.substr(0, size), kBin);
    expect_error([&] { open(); }, {"text.idx: "});
  }
  put(kIdx + "x", kBin);
  expect_error([&] { open(); }, {"text.idx: size: found 95 bytes, expected 94"});
  put(kIdx + "abc", kBin);
  expect_error([&] { open(); }, {"text.idx: size: found 97 bytes (modes of multimodal data are not supported)"});
  for (std::size_t size = 0; size < kBin.size(); ++size) {
    put(kIdx, kBin.substr(0, size));
    expect_error([&] { open(); }, {"text.bin: size: found " + std::to_string(size) + " bytes, expected 12"});
  }
  put(kIdx, kBin + "xy");
  expect_error([&] { open(); }, {"text.bin: size: found 14 bytes, expected 12"});
}

TEST_F(IndexedDatasetTest, RandomCorruptionIsRefusedOrHarmless) {
  std::mt19937 random(1);
  int refused = 0, read = 0;
  for (int i = 0; i < 1000; ++i) {
    std::string idx = kIdx;
    for (unsigned flips = random() % 3 + 1; flips > 0; --flips)
      idx[random() % idx.size()] = static_cast<char>(random());
    put(idx, kBin);
    try {
      const IndexedDataset data = open(std::int64_t{1} << 40);
      EXPECT_EQ(static_cast<std::size_t>(data.tokens()) * token_bytes(data.type()), kBin.size());
      all_tokens(data);
      ++read;
    } catch (const ExecutionError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 800);
  EXPECT_GT(read, 0);
}

TEST_F(IndexedDatasetTest, MissingFileIsNamed) {
  expect_error([&] { open(); }, {prefix + ".idx", "No such file"});
  put_bytes(prefix + ".idx", kIdx);
  expect_error([&] { open(); }, {prefix + ".bin", "No such file"});
}

TEST_F(IndexedDatasetTest, AnIdOutsideTheVocabularyIsFoundWhenRead) {
  put(kIdx, kBin);
  const IndexedDataset data = open(65000);
  Tokens before(3), after(1);
  data.read(0, before);
  data.read(5, after);
  expect_error([&] { data.read(3, after); },
               {"text.bin: token 3 (byte 6): found 65000, expected 0 to 64999, the vocabulary"});
  expect_error([&] { data.check_tokens(); }, {"token 3"});
  std::string idx = kIdx;
  idx[17] = 3;  // as i16, 65000 is -536
  put(idx, kBin);
  expect_error([&] { all_tokens(open()); }, {"token 3 (byte 6): found -536, expected 0 to 65399"});
}

TEST_F(IndexedDatasetTest, ReadingPastTheEndIsRefused) {
  put(kIdx, kBin);
  const IndexedDataset data = open();
  Tokens two(2);
  expect_error([&] { data.read(5, two); }, {"tokens 5 to 7 of the 6", "text.bin"});
  expect_error([&] { data.read(-1, two); }, {"tokens -1 to 1 of the 6"});
}

TEST_F(IndexedDatasetTest, WriterGivesTheseBytes) {
  write_indexed_dataset(prefix, std::vector<Tokens>{{1, 2, 3}, {65000}}, kVocab);
  EXPECT_EQ(get_bytes(prefix + ".bin"), kBin.substr(0, 8));
  EXPECT_EQ(get_bytes(prefix + ".idx"),
            kIdx.substr(0, 18) + "\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x03\0\0\0\x01\0\0\0"s +
                "\0\0\0\0\0\0\0\0\x06\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0"s);
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) files += entry.exists();
  EXPECT_EQ(files, 2u) << "temporary files stay behind";
}

TEST_F(IndexedDatasetTest, WriterTakesU16Below65500) {
  write_indexed_dataset(prefix, std::vector<Tokens>{{65498}}, 65499);
  EXPECT_EQ(open(65499).type(), TokenType::U16);
  write_indexed_dataset(prefix, std::vector<Tokens>{{65499}}, 65500);
  const IndexedDataset wide = open(65500);
  EXPECT_EQ(wide.type(), TokenType::I32);
  EXPECT_EQ(all_tokens(wide), (Tokens{65499}));
}

TEST_F(IndexedDatasetTest, WriterRefusesBadDocumentsAndLeavesTheOldFiles) {
  write_indexed_dataset(prefix, std::vector<Tokens>{{1, 2, 3}}, 10);
  const auto write = [&](std::vector<Tokens> documents, std::int64_t vocab) {
    return [=, this] { write_indexed_dataset(prefix, documents, vocab); };
  };
  expect_error(write({}, 10), {prefix, "documents: found 0, expected at least 1"});
  expect_error(write({{1}, {}}, 10), {"document 1: tokens: found 0"});
  expect_error(write({{1}, {2, 10}}, 10), {"document 1: token: found 10, expected 0 to 9"});
  expect_error(write({{-1}}, 10), {"document 0: token: found -1, expected 0 to 9"});
  expect_error(write({{0}}, 0), {"vocabulary: found 0"});
  EXPECT_EQ(all_tokens(open(10)), (Tokens{1, 2, 3}));
}

}  // namespace
}  // namespace fem::exec
