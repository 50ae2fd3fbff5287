#include <algorithm>
#include <cstring>
#include <limits>

#include "executor/data/indexed_dataset.hpp"
#include "executor/error.hpp"

namespace fem::exec {
namespace {

using Documents = std::span<const std::vector<std::int64_t>>;

template <typename T>
void append(std::string& bytes, T value) {
  char raw[sizeof value];
  std::memcpy(raw, &value, sizeof value);
  bytes.append(raw, sizeof value);
}

void check_documents(const std::string& prefix, Documents documents, std::int64_t vocab) {
  constexpr std::int64_t kLimit = std::numeric_limits<std::int32_t>::max();
  if (vocab < 1 || vocab > kLimit) {
    field_error(prefix, "vocabulary", std::to_string(vocab), "1 to " + std::to_string(kLimit));
  }
  if (documents.empty()) field_error(prefix, "documents", "0", "at least 1");
  for (std::size_t i = 0; i < documents.size(); ++i) {
    const std::string document = "document " + std::to_string(i);
    const auto length = static_cast<std::int64_t>(documents[i].size());
    if (length < 1 || length > kLimit) {
      field_error(prefix, document + ": tokens", std::to_string(length), "1 to " + std::to_string(kLimit));
    }
    for (const std::int64_t token : documents[i]) {
      if (token < 0 || token >= vocab) {
        field_error(prefix, document + ": token", std::to_string(token),
                    "0 to " + std::to_string(vocab - 1) + ", the vocabulary");
      }
    }
  }
}

void write_tokens(const std::string& path, Documents documents, TokenType type) {
  AtomicFile file(path);
  std::string bytes;
  for (const auto& document : documents) {
    bytes.clear();
    for (const std::int64_t token : document) {
      if (type == TokenType::U16) {
        append(bytes, static_cast<std::uint16_t>(token));
      } else {
        append(bytes, static_cast<std::int32_t>(token));
      }
    }
    file.write(bytes);
  }
  file.commit();
}

std::string index_bytes(Documents documents, TokenType type) {
  std::string bytes("MMIDIDX\0\0", 9);
  append(bytes, std::uint64_t{1});
  append(bytes, static_cast<std::uint8_t>(type));
  append(bytes, std::uint64_t{documents.size()});
  append(bytes, std::uint64_t{documents.size() + 1});
  for (const auto& document : documents) append(bytes, static_cast<std::int32_t>(document.size()));
  std::int64_t offset = 0;
  for (const auto& document : documents) {
    append(bytes, offset);
    offset += static_cast<std::int64_t>(document.size() * token_bytes(type));
  }
  for (std::size_t i = 0; i <= documents.size(); ++i) append(bytes, static_cast<std::int64_t>(i));
  return bytes;
}

void check_written(const std::string& prefix, Documents documents, std::int64_t vocab) {
  const IndexedDataset written(prefix, vocab);
  std::vector<std::int64_t> tokens;
  std::int64_t first = 0;
  for (std::size_t i = 0; i < documents.size(); ++i) {
    tokens.resize(documents[i].size());
    written.read(first, tokens);
    if (tokens != documents[i]) {
      throw ExecutionError(written.bin_path() + ": document " + std::to_string(i) +
                           " reads back otherwise than written");
    }
    first += static_cast<std::int64_t>(tokens.size());
  }
}

}  // namespace

void write_indexed_dataset(const std::string& prefix, Documents documents, std::int64_t vocab) {
  check_documents(prefix, documents, vocab);
  const TokenType type = vocab < 65500 ? TokenType::U16 : TokenType::I32;
  // Without an index there is no data set: a write that stops half way never leaves old lengths beside new tokens.
  remove_tree(prefix + ".idx");
  write_tokens(prefix + ".bin", documents, type);
  write_file(prefix + ".idx", index_bytes(documents, type));
  check_written(prefix, documents, vocab);
}

}  // namespace fem::exec
