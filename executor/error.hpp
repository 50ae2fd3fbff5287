// The executor's one error type, and the checks that throw it.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace fem::exec {

// What went wrong, and where: -1 and "" mean unknown. what() is the whole sentence:
// "rank 2 (pp 1 dp 0), step 17, SendBackward s1 m3 to 0: no answer from rank 0 for 30 s".
class ExecutionError : public std::runtime_error {
 public:
  // `place` is where the rank stands in the mesh, "pp 1 dp 0" (Topology::place).
  explicit ExecutionError(std::string message, int rank = -1, std::int64_t step = -1, std::string action = {},
                          std::string place = {});

  const std::string& message() const { return message_; }
  int rank() const { return rank_; }
  std::int64_t step() const { return step_; }
  const std::string& action() const { return action_; }
  const std::string& place() const { return place_; }

 private:
  std::string message_, action_, place_;
  int rank_;
  std::int64_t step_;
};

[[noreturn]] void check_failed(const char* condition, const char* file, int line, const std::string& message);

// Always on, at boundaries. The message is evaluated only on failure.
#define FEM_CHECK(condition, message) \
  do {                                \
    if (!(condition)) [[unlikely]]    \
      ::fem::exec::check_failed(#condition, __FILE__, __LINE__, (message)); \
  } while (false)

#ifdef NDEBUG
#define FEM_DCHECK(condition, message) \
  do {                                 \
  } while (false)
#else
#define FEM_DCHECK(condition, message) FEM_CHECK(condition, message)
#endif

}  // namespace fem::exec
