// How the checks of the verifier say what is wrong and where. Used by the verifier's files only.
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "ir/verify.hpp"

namespace fem::ir::verifying {

// The codes of invariants.def, so that a misspelt one does not compile.
enum class Code {
#define INVARIANT(code, title, explanation) code,
#include "ir/invariants.def"
};
inline constexpr int kCodes = 0
#define INVARIANT(...) +1
#include "ir/invariants.def"
    ;

// An action of the plan; inside a batch one half.
struct Place {
  std::size_t program = 0, rank = 0, action = 0;
};

class Report {
 public:
  Report(const Plan& plan, DiagnosticSink& sink, VerifySource source) : plan_(plan), sink_(sink), source_(source) {}

  void settings(Code code, std::string_view section, std::string message);
  void plan(Code code, std::string message);
  void stage(Code code, std::size_t stage, std::string message);
  void program(Code code, std::size_t program, std::string message);
  void rank(Code code, std::size_t program, std::size_t rank, std::string message);
  void action(Code code, Place place, std::string message);

  // "Forward s1 m3 (line 17)" or "Forward s1 m3 (action 17)", for use inside a message.
  std::string at(Place place) const;
  // The same for the whole batch that begins there.
  std::string batch_at(Place place) const;

  int errors() const { return errors_; }
  // Whether another error of this code would be printed.
  bool shows(Code code) const { return count_[static_cast<std::size_t>(code)] < kShownPerCode; }
  // Says how many errors of each kind were left out: a broken plan breaks a rule many times over.
  void finish();

 private:
  static constexpr int kShownPerCode = 5;

  bool take(Code code);  // counts the error; false: not shown any more
  void say(Code code, int line, int column, std::string message, std::string place);
  std::span<const Action> from(Place place) const;
  std::string numbered(std::string text, Place place) const;
  int line_of(Place place) const;  // 0: unknown

  const Plan& plan_;
  DiagnosticSink& sink_;
  VerifySource source_;
  int errors_ = 0;
  std::array<int, kCodes> count_{};
};

}  // namespace fem::ir::verifying
