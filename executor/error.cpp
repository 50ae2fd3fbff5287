#include "executor/error.hpp"

#include <utility>

namespace fem::exec {
namespace {

std::string sentence(const std::string& message, int rank, std::int64_t step, const std::string& action,
                     const std::string& place) {
  std::string text;
  const auto add = [&text](const std::string& part) { text += text.empty() ? part : ", " + part; };
  if (rank >= 0) add("rank " + std::to_string(rank) + (place.empty() ? "" : " (" + place + ")"));
  if (step >= 0) add("step " + std::to_string(step));
  if (!action.empty()) add(action);
  return text.empty() ? message : text + ": " + message;
}

}  // namespace

ExecutionError::ExecutionError(std::string message, int rank, std::int64_t step, std::string action, std::string place)
    : std::runtime_error(sentence(message, rank, step, action, place)),
      message_(std::move(message)),
      action_(std::move(action)),
      place_(std::move(place)),
      rank_(rank),
      step_(step) {}

void check_failed(const char* condition, const char* file, int line, const std::string& message) {
  throw ExecutionError(std::string(file) + ":" + std::to_string(line) + ": " + message + " (violated: " + condition +
                       ")");
}

}  // namespace fem::exec
