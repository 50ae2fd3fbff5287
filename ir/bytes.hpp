// Numbers of bytes as people write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fem::ir {

// "80GiB", "1.5 MB", "4096": a number and a unit, of B, kB, MB, GB, TB (powers of 1000) and KiB, MiB, GiB, TiB (powers
// of 1024); without a unit bytes. Empty for anything else, a negative number or more than 2^62 bytes.
std::optional<std::int64_t> parse_bytes(std::string_view text);

// What a text that parse_bytes does not take may have meant: "80GiB" for "80gib" and "80 G", "80GB" for "80 gigabytes",
// "1.5TB" for "1,5tb"; empty where nothing is near.
std::string nearest_bytes(std::string_view text);

// "1.50 GiB", "12.0 KiB", "640 B".
std::string bytes_text(std::int64_t bytes);

}  // namespace fem::ir
