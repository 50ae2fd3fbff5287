// Token files in Megatron's indexed format: PREFIX.idx and PREFIX.bin, read by memory map.
//
// .idx, little-endian, S sequences, D document boundaries (documents = D - 1):
//   "MMIDIDX\0\0"; u64 version 1; u8 type code; u64 S; u64 D; i32[S] lengths in tokens; i64[S] byte offsets into .bin;
//   i64[D] document boundaries, counted in sequences
// .bin: the tokens of all sequences one after another, no header.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "executor/weights/file_io.hpp"

namespace fem::exec {

// The codes of the format. Float types exist in it but hold no tokens: a reader refuses them.
enum class TokenType : std::uint8_t { U8 = 1, I8 = 2, I16 = 3, I32 = 4, I64 = 5, F64 = 6, F32 = 7, U16 = 8 };
std::size_t token_bytes(TokenType type);
std::string_view name(TokenType type);  // "u8", ...

// The corpus as one sequence of tokens. Safe to read from many threads.
class IndexedDataset {
 public:
  // `prefix` is the path without ".idx" or ".bin"; a path that ends in one of them is accepted.
  // Checks everything but the tokens themselves: magic, version, type, exact sizes of both files, offsets cumulative,
  // boundaries monotone from 0 to S. Throws ExecutionError that names file, field, and the values found and expected.
  IndexedDataset(const std::string& prefix, std::int64_t vocab);

  const std::string& bin_path() const { return bin_.path(); }
  TokenType type() const { return type_; }
  std::int64_t vocab() const { return vocab_; }
  std::int64_t tokens() const { return tokens_; }
  std::int64_t sequences() const { return sequences_; }
  std::int64_t documents() const { return documents_; }
  std::int64_t sequence_length(std::int64_t sequence) const;
  std::int64_t document_boundary(std::int64_t index) const;  // 0 .. documents()

  // Copies tokens [first, first + out.size()) of the corpus; each id is checked against the vocabulary.
  void read(std::int64_t first, std::span<std::int64_t> out) const;

  // Reads every token once, if there are at most `limit`, so that a bad id is reported before the first step.
  // Returns whether it did.
  bool check_tokens(std::int64_t limit = std::int64_t{1} << 26) const;

 private:
  MappedFile idx_, bin_;
  TokenType type_ = TokenType::U16;
  std::int64_t vocab_ = 0, tokens_ = 0, sequences_ = 0, documents_ = 0;
  std::size_t lengths_at_ = 0, boundaries_at_ = 0;  // byte positions in .idx
};

// Writes one sequence per document; the type is u16 when vocab < 65500, else i32, as Megatron chooses. Both files are
// renamed into place, the index last, and read back as IndexedDataset before the function returns.
// Errors: no document, an empty document, an id outside 0 .. vocab-1, and failed writes.
void write_indexed_dataset(const std::string& prefix, std::span<const std::vector<std::int64_t>> documents,
                           std::int64_t vocab);

}  // namespace fem::exec
