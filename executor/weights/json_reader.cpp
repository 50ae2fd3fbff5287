#include "executor/weights/json_reader.hpp"

#include <limits>
#include <set>
#include <vector>

#include "executor/error.hpp"
#include "executor/weights/file_io.hpp"

namespace fem::exec {

using nlohmann::json;

json parse_object(const std::string& file, std::string_view text) {
  std::vector<std::set<std::string>> open;  // the keys seen in each object that is not closed yet
  std::string twice;
  const auto watch = [&](int, json::parse_event_t event, json& parsed) {
    switch (event) {
      case json::parse_event_t::object_start: open.emplace_back(); break;
      case json::parse_event_t::object_end: open.pop_back(); break;
      case json::parse_event_t::key:
        if (!open.back().insert(parsed.get<std::string>()).second && twice.empty()) twice = parsed.get<std::string>();
        break;
      case json::parse_event_t::array_start:
      case json::parse_event_t::array_end:
      case json::parse_event_t::value: break;
    }
    return true;
  };
  json object;
  try {
    object = json::parse(text.begin(), text.end(), watch);
  } catch (const json::exception& error) {
    throw ExecutionError(file + ": not valid JSON: " + error.what());
  }
  if (!object.is_object()) value_error(file, "whole text", object, "a JSON object");
  if (!twice.empty()) throw ExecutionError(file + ": \"" + twice + "\" stands twice in one object");
  return object;
}

const json& member(const std::string& file, const std::string& where, const json& object, const std::string& key) {
  if (!object.is_object()) value_error(file, where, object, "an object");
  const auto at = object.find(key);
  if (at == object.end()) {
    throw ExecutionError(file + ": " + (where.empty() ? "" : where + ": ") + "no \"" + key + "\"");
  }
  return *at;
}

void value_error(const std::string& file, const std::string& where, const json& value, const std::string& expected) {
  std::string found = value.dump(-1, ' ', false, json::error_handler_t::replace);
  if (found.size() > 80) found = found.substr(0, 77) + "...";
  field_error(file, where, found, expected);
}

std::uint64_t to_count(const std::string& file, const std::string& where, const json& value) {
  if (!value.is_number_integer()) value_error(file, where, value, "an integer of 0 or more");
  const bool negative = !value.is_number_unsigned() && value.get<std::int64_t>() < 0;
  if (negative || value.get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    value_error(file, where, value, "an integer from 0 to 2^63 - 1");
  }
  return value.get<std::uint64_t>();
}

std::string to_text(const std::string& file, const std::string& where, const json& value) {
  if (!value.is_string()) value_error(file, where, value, "a string");
  return value.get<std::string>();
}

}  // namespace fem::exec
