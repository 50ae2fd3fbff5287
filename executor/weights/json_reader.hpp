// JSON objects of known fields, read with errors that name file, field and value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace fem::exec {

// Parses one JSON object. Errors: the text is no object; a key that stands twice in one object.
nlohmann::json parse_object(const std::string& file, std::string_view text);

// The member `key` of `object`; `where` is the object's place in the file ("" for the whole), for messages.
const nlohmann::json& member(const std::string& file, const std::string& where, const nlohmann::json& object,
                             const std::string& key);

// "FILE: WHERE: found VALUE, expected EXPECTED".
[[noreturn]] void value_error(const std::string& file, const std::string& where, const nlohmann::json& value,
                              const std::string& expected);

std::uint64_t to_count(const std::string& file, const std::string& where, const nlohmann::json& value);  // 0 .. 2^63-1
std::string to_text(const std::string& file, const std::string& where, const nlohmann::json& value);

}  // namespace fem::exec
