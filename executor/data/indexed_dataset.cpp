#include "executor/data/indexed_dataset.hpp"

#include <bit>
#include <cstring>
#include <filesystem>
#include <limits>
#include <utility>

#include "executor/error.hpp"

namespace fem::exec {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian and read as it lies");

constexpr std::string_view kMagic{"MMIDIDX\0\0", 9};
constexpr std::size_t kHeaderBytes = 34;  // magic 9, version 8, type 1, sequences 8, boundaries 8

// The fields of .idx are not aligned.
template <typename T>
T load_at(const MappedFile& file, std::size_t byte) {
  T value;
  std::memcpy(&value, file.bytes().data() + byte, sizeof value);
  return value;
}

std::string strip_ending(std::string prefix) {
  for (const char* ending : {".idx", ".bin"}) {
    if (prefix.ends_with(ending)) return prefix.substr(0, prefix.size() - 4);
  }
  return prefix;
}

std::string printable(std::string_view bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "\"";
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      text += c;
    } else {
      text += std::string("\\x") + kDigits[byte >> 4] + kDigits[byte & 15];
    }
  }
  return text + "\"";
}

struct Header {
  TokenType type = TokenType::U16;
  std::int64_t sequences = 0, boundaries = 0;
};

Header read_header(const MappedFile& idx) {
  const std::string& file = idx.path();
  const std::size_t size = idx.bytes().size();
  if (size < kHeaderBytes) {
    field_error(file, "size", std::to_string(size) + " bytes", "at least the header's " + std::to_string(kHeaderBytes));
  }
  const std::string_view magic = idx.text().substr(0, kMagic.size());
  if (magic != kMagic) field_error(file, "magic", printable(magic), printable(kMagic));
  const auto version = load_at<std::uint64_t>(idx, 9);
  if (version != 1) field_error(file, "version", std::to_string(version), "1");
  const auto code = load_at<std::uint8_t>(idx, 17);
  if (code < 1 || code > 8) field_error(file, "type code", std::to_string(code), "1 to 8");
  Header header;
  header.type = static_cast<TokenType>(code);
  if (header.type == TokenType::F32 || header.type == TokenType::F64) {
    field_error(file, "type code", std::to_string(code) + " (" + std::string(name(header.type)) + ")",
                "a type of integers: 1 u8, 2 i8, 3 i16, 4 i32, 5 i64, 8 u16");
  }
  const auto sequences = load_at<std::uint64_t>(idx, 18), boundaries = load_at<std::uint64_t>(idx, 26);
  // Bounded by the file before the sizes are multiplied, which could overflow.
  if (sequences < 1 || sequences > size / 12) {
    field_error(file, "sequences", std::to_string(sequences),
                "1 to " + std::to_string(size / 12) + " (12 bytes each in a file of " + std::to_string(size) + ")");
  }
  if (boundaries < 2 || boundaries > size / 8) {
    field_error(file, "document boundaries", std::to_string(boundaries),
                "2 to " + std::to_string(size / 8) + " (8 bytes each in a file of " + std::to_string(size) + ")");
  }
  header.sequences = static_cast<std::int64_t>(sequences);
  header.boundaries = static_cast<std::int64_t>(boundaries);
  const std::size_t expected = kHeaderBytes + sequences * 12 + boundaries * 8;
  if (size != expected) {
    const std::string modes = size == expected + sequences ? " (modes of multimodal data are not supported)" : "";
    field_error(file, "size", std::to_string(size) + " bytes" + modes,
                std::to_string(expected) + " for " + std::to_string(sequences) + " sequences and " +
                    std::to_string(boundaries) + " document boundaries");
  }
  return header;
}

// Checks lengths and offsets; returns the number of tokens.
std::int64_t check_sequences(const MappedFile& idx, const Header& header) {
  const std::size_t offsets_at = kHeaderBytes + static_cast<std::size_t>(header.sequences) * 4;
  const auto item = static_cast<std::int64_t>(token_bytes(header.type));
  std::int64_t tokens = 0;
  for (std::int64_t i = 0; i < header.sequences; ++i) {
    const auto length = load_at<std::int32_t>(idx, kHeaderBytes + static_cast<std::size_t>(i) * 4);
    if (length < 0) {
      field_error(idx.path(), "length of sequence " + std::to_string(i), std::to_string(length), "0 or more");
    }
    const auto offset = load_at<std::int64_t>(idx, offsets_at + static_cast<std::size_t>(i) * 8);
    if (offset != tokens * item) {
      field_error(idx.path(), "offset of sequence " + std::to_string(i), std::to_string(offset),
                  std::to_string(tokens * item) + " (the sum of the lengths before it, in bytes)");
    }
    tokens += length;
  }
  return tokens;
}

void check_boundaries(const MappedFile& idx, const Header& header, std::size_t at) {
  std::int64_t before = 0;
  for (std::int64_t i = 0; i < header.boundaries; ++i) {
    const auto boundary = load_at<std::int64_t>(idx, at + static_cast<std::size_t>(i) * 8);
    const std::string field = "document boundary " + std::to_string(i);
    if (i == 0 && boundary != 0) field_error(idx.path(), field, std::to_string(boundary), "0");
    if (boundary < before || boundary > header.sequences) {
      field_error(idx.path(), field, std::to_string(boundary),
                  std::to_string(before) + " to " + std::to_string(header.sequences));
    }
    before = boundary;
  }
  if (before != header.sequences) {
    field_error(idx.path(), "last document boundary", std::to_string(before),
                std::to_string(header.sequences) + ", the number of sequences");
  }
}

template <typename T>
void copy_tokens(const MappedFile& bin, std::int64_t first, std::int64_t vocab, std::span<std::int64_t> out) {
  const std::byte* at = bin.bytes().data() + static_cast<std::size_t>(first) * sizeof(T);
  for (std::size_t i = 0; i < out.size(); ++i) {
    T token;
    std::memcpy(&token, at + i * sizeof(T), sizeof(T));
    out[i] = static_cast<std::int64_t>(token);
    if (out[i] < 0 || out[i] >= vocab) [[unlikely]] {
      const auto index = static_cast<std::size_t>(first) + i;
      field_error(bin.path(), "token " + std::to_string(index) + " (byte " + std::to_string(index * sizeof(T)) + ")",
                  std::to_string(out[i]), "0 to " + std::to_string(vocab - 1) + ", the vocabulary");
    }
  }
}

}  // namespace

std::size_t token_bytes(TokenType type) {
  switch (type) {
    case TokenType::U8:
    case TokenType::I8: return 1;
    case TokenType::I16:
    case TokenType::U16: return 2;
    case TokenType::I32:
    case TokenType::F32: return 4;
    case TokenType::I64:
    case TokenType::F64: return 8;
  }
  return 0;
}

std::string_view name(TokenType type) {
  switch (type) {
    case TokenType::U8: return "u8";
    case TokenType::I8: return "i8";
    case TokenType::I16: return "i16";
    case TokenType::I32: return "i32";
    case TokenType::I64: return "i64";
    case TokenType::F64: return "f64";
    case TokenType::F32: return "f32";
    case TokenType::U16: return "u16";
  }
  return "?";
}

IndexedDataset::IndexedDataset(const std::string& prefix, std::int64_t vocab)
    : idx_(strip_ending(prefix) + ".idx"), bin_(strip_ending(prefix) + ".bin"), vocab_(vocab) {
  const Header header = read_header(idx_);
  type_ = header.type;
  sequences_ = header.sequences;
  documents_ = header.boundaries - 1;
  lengths_at_ = kHeaderBytes;
  boundaries_at_ = kHeaderBytes + static_cast<std::size_t>(sequences_) * 12;
  tokens_ = check_sequences(idx_, header);
  check_boundaries(idx_, header, boundaries_at_);
  const std::size_t expected = static_cast<std::size_t>(tokens_) * token_bytes(type_);
  if (bin_.bytes().size() != expected) {
    field_error(bin_.path(), "size", std::to_string(bin_.bytes().size()) + " bytes",
                std::to_string(expected) + " for the " + std::to_string(tokens_) + " " + std::string(name(type_)) +
                    " tokens of " + idx_.path());
  }
}

std::int64_t IndexedDataset::sequence_length(std::int64_t sequence) const {
  FEM_CHECK(sequence >= 0 && sequence < sequences_, "sequence " + std::to_string(sequence) + " of " + idx_.path());
  return load_at<std::int32_t>(idx_, lengths_at_ + static_cast<std::size_t>(sequence) * 4);
}

std::int64_t IndexedDataset::document_boundary(std::int64_t index) const {
  FEM_CHECK(index >= 0 && index <= documents_, "boundary " + std::to_string(index) + " of " + idx_.path());
  return load_at<std::int64_t>(idx_, boundaries_at_ + static_cast<std::size_t>(index) * 8);
}

void IndexedDataset::read(std::int64_t first, std::span<std::int64_t> out) const {
  const auto count = static_cast<std::int64_t>(out.size());
  FEM_CHECK(first >= 0 && first <= tokens_ && count <= tokens_ - first,
            "tokens " + std::to_string(first) + " to " + std::to_string(first + count) + " of the " +
                std::to_string(tokens_) + " in " + bin_.path());
  switch (type_) {
    case TokenType::U8: return copy_tokens<std::uint8_t>(bin_, first, vocab_, out);
    case TokenType::I8: return copy_tokens<std::int8_t>(bin_, first, vocab_, out);
    case TokenType::I16: return copy_tokens<std::int16_t>(bin_, first, vocab_, out);
    case TokenType::I32: return copy_tokens<std::int32_t>(bin_, first, vocab_, out);
    case TokenType::I64: return copy_tokens<std::int64_t>(bin_, first, vocab_, out);
    case TokenType::U16: return copy_tokens<std::uint16_t>(bin_, first, vocab_, out);
    case TokenType::F32:
    case TokenType::F64: break;  // refused on opening
  }
}

bool IndexedDataset::check_tokens(std::int64_t limit) const {
  if (tokens_ > limit) return false;
  std::vector<std::int64_t> block(std::size_t{1} << 16);
  for (std::int64_t first = 0; first < tokens_; first += static_cast<std::int64_t>(block.size())) {
    const auto count = std::min<std::int64_t>(tokens_ - first, static_cast<std::int64_t>(block.size()));
    read(first, std::span(block).first(static_cast<std::size_t>(count)));
  }
  return true;
}

}  // namespace fem::exec
