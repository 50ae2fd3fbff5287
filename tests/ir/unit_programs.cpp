#include "tests/ir/unit_programs.hpp"

#include <array>
#include <initializer_list>
#include <map>
#include <tuple>
#include <utility>

#include "ir/builder.hpp"
#include "tests/ir/hash.hpp"

namespace fem::ir::testing {
namespace {

constexpr int kUnits = 5;

struct Failure {
  std::string reason;
};

Action of(ActionKind kind, int unit, int microbatch = -1, int block = -1) {
  Action a = action(kind, 0, microbatch);
  a.unit = static_cast<std::int16_t>(unit);
  a.slot = static_cast<std::int16_t>(block);
  if (info(kind).has(operand::kG)) a.group = Group::dp_cp;
  return a;
}

// One unit after the other, as passes would write it; every gather is released at once.
class Writer {
 public:
  explicit Writer(const UnitShape& shape) : shape_(shape), before_use_(shape.before_use && shape.zero % 3 != 0) {}

  Program train() {
    if (!shape_.by_microbatch) out_.push_back(of(ActionKind::ZeroGrad, -1));
    for (int m = 0; m < shape_.microbatches; ++m) {
      for (int u = 0; u < kUnits; ++u) forward(u, m);
    }
    for (int m = 0; m < shape_.microbatches; ++m) {
      for (int u = kUnits; u-- > 0;) backward(u, m);
      for (int u = kUnits; u-- > 0 && shape_.split;) weight(of(ActionKind::BackwardWeight, u, m));
    }
    out_.push_back(reduce_loss());
    if (!shape_.by_microbatch) out_.push_back(over_pieces(of(reduction(), -1)));
    if (shape_.groups && shape_.zero > 0) {
      out_.push_back(of(ActionKind::AllReduceShard, -1));
      out_.back().group = Group::replicate;
    }
    for (const Action& a : {grad_norm(), clip_grad(0)}) out_.push_back(a);
    update();
    if ((shape_.zero == 1 || shape_.zero == 2) && !before_use_) {
      out_.push_back(over_pieces(of(ActionKind::Unshard, -1)));
    }
    return {"train", false, shape_.microbatches, {{std::move(out_), {}}}};
  }

  Program eval() {
    out_.clear();
    whole_ = {};
    for (int u = 0; u < kUnits; ++u) gathered(of(ActionKind::Forward, u, 0));
    out_.push_back(reduce_loss());
    return {"eval", true, 1, {{std::move(out_), {}}}};
  }

 private:
  ActionKind reduction() const { return shape_.zero > 0 ? ActionKind::ReduceScatter : ActionKind::AllReduce; }
  int block_of(int u) const { return u % 2 ? -1 : 1; }
  bool recomputed(int u) const { return shape_.recompute && u > 0 && u + 1 < kUnits; }

  Action over_pieces(Action a) const {
    if (shape_.groups && shape_.zero > 0) a.group = Group::shard;
    return a;
  }
  void gathered(const Action& a) {
    const bool first = before_use_ && !std::exchange(whole_[static_cast<std::size_t>(a.unit)], true);
    if (shape_.zero == 3 || first) out_.push_back(over_pieces(of(ActionKind::Unshard, a.unit)));
    out_.push_back(a);
    if (shape_.zero == 3) out_.push_back(of(ActionKind::Reshard, a.unit));
  }
  void weight(const Action& a) {
    if (shape_.by_microbatch) out_.push_back(of(ActionKind::ZeroGrad, a.unit));
    a.kind == ActionKind::Backward ? gathered(a) : out_.push_back(a);
    if (shape_.by_microbatch) out_.push_back(over_pieces(of(reduction(), a.unit)));
  }
  void update() {
    if (!shape_.offload) return out_.push_back(optimizer_step(0));
    for (int u = 0; u < kUnits; ++u) {
      out_.push_back(of(ActionKind::ReloadOptimizer, u));
      out_.push_back(optimizer_step(0));
      out_.back().unit = static_cast<std::int16_t>(u);
      out_.push_back(of(ActionKind::OffloadOptimizer, u));
    }
  }
  void forward(int u, int m) {
    gathered(of(ActionKind::Forward, u, m));
    if (recomputed(u)) out_.push_back(of(ActionKind::Free, u, m, block_of(u)));
  }
  void backward(int u, int m) {
    if (recomputed(u)) gathered(of(ActionKind::Recompute, u, m, block_of(u)));
    shape_.split ? gathered(of(ActionKind::BackwardInput, u, m)) : weight(of(ActionKind::Backward, u, m));
  }

  UnitShape shape_;
  bool before_use_;
  std::array<bool, kUnits> whole_{};  // by unit: gathered in this program
  std::vector<Action> out_;
};

// Names: the tensor's letter, unit, saved block, microbatch.
using Key = std::tuple<char, int, int, int>;

class UnitWorld {
 public:
  UnitWorld(const Plan& plan, const Program& program)
      : program_(program),
        zero_(plan.level < Level::Unit ? 0 : plan.settings.parallel.zero),
        moments_(plan.settings.memory.offload == "optimizer" ? 'H' : 'm'),
        stays_whole_(zero_ < 3 && (zero_ == 0 || plan.settings.parallel.gather == "update")) {
    for (int u = 0; u < kUnits; ++u) {
      values_[{'h', u, 0, 0}] = hash({static_cast<Hash>(u)});
      values_[{moments_, u, 0, 0}] = hash({static_cast<Hash>(u), 'm'});
      if (stays_whole_) values_[{'p', u, 0, 0}] = values_[{'h', u, 0, 0}];
    }
    values_[{'l', 0, 0, 0}] = 0;
  }

  UnitResult run() {
    UnitResult result;
    try {
      for (const Action& a : program_.ranks[0].actions) {
        if (a.unit >= 0 || !info(a.kind).has(operand::kU)) {
          execute(a);
          continue;
        }
        const bool up = a.kind == ActionKind::Forward;
        for (int i = 0; i < kUnits; ++i) {
          Action one = a;
          one.unit = static_cast<std::int16_t>(up ? i : kUnits - 1 - i);
          execute(one);
        }
      }
      for (int u = 0; u < kUnits; ++u) {
        result.shard.push_back(hash({get({'h', u, 0, 0}), get({moments_, u, 0, 0})}));
        // What the next step would compute with.
        if (zero_ > 0 && stays_whole_) result.shard.back() = hash({result.shard.back(), get({'p', u, 0, 0})});
      }
      result.loss = get({'M', 0, 0, 0});
      result.held = values_.size();
    } catch (const Failure& failure) {
      return {failure.reason, {}, 0, 0};
    }
    return result;
  }

 private:
  Hash get(const Key& key) const {
    const auto found = values_.find(key);
    if (found == values_.end()) throw Failure{std::string("undefined ") + std::get<0>(key)};
    return found->second;
  }
  Hash take(const Key& key) {
    const Hash value = get(key);
    values_.erase(key);
    return value;
  }
  void put(const Key& key, Hash value) {
    if (!values_.emplace(key, value).second) throw Failure{std::string("overwritten ") + std::get<0>(key)};
  }
  // Zero is defined by ZeroGrad; sums of the step begin with their first term.
  void add(const Key& key, Hash value) { values_[key] = get(key) + value; }

  Hash saved(int u, int k, Hash x) const {
    return hash({'S', static_cast<Hash>(u), static_cast<Hash>(k), x, get({'p', u, 0, 0})});
  }

  void execute(const Action& a) {
    const int u = a.unit, m = a.microbatch;
    const auto id = static_cast<Hash>(u), mb = static_cast<Hash>(m);
    switch (a.kind) {
      case ActionKind::Forward: {
        const Hash x = u > 0 ? take({'a', u - 1, 0, m}) : hash({mb});
        const Hash y = hash({'F', id, mb, x, get({'p', u, 0, 0})});
        if (!program_.forward_only) {
          for (int k = 0; k < 2; ++k) put({'S', u, k, m}, saved(u, k, x));
          put({'x', u, 0, m}, x);
        }
        u + 1 < kUnits ? put({'a', u, 0, m}, y) : add({'l', 0, 0, 0}, hash({'l', mb, y}));
        return;
      }
      case ActionKind::Free:
        for (int k = 0; k < 2; ++k) {
          if (a.slot < 0 || a.slot == k) take({'S', u, k, m});
        }
        return;
      case ActionKind::Recompute: {
        const Hash x = get({'x', u, 0, m});
        for (int k = 0; k < 2; ++k) {
          if (a.slot >= 0 && a.slot != k) get({'S', u, k, m});  // one block is computed from the other
          if (a.slot < 0 || a.slot == k) put({'S', u, k, m}, saved(u, k, x));
        }
        return;
      }
      case ActionKind::Backward:
      case ActionKind::BackwardInput: {
        const Hash dy = u + 1 < kUnits ? take({'g', u, 0, m}) : hash({mb, 7});
        const Hash all = hash({take({'S', u, 0, m}), take({'S', u, 1, m}), take({'x', u, 0, m}), dy});
        if (u > 0) put({'g', u - 1, 0, m}, hash({'g', id, all, get({'p', u, 0, 0})}));
        if (u == 0) get({'p', u, 0, 0});
        if (a.kind == ActionKind::BackwardInput) return put({'W', u, 0, m}, all);
        return add({'G', u, 0, 0}, hash({'G', all}));
      }
      case ActionKind::BackwardWeight: return add({'G', u, 0, 0}, hash({'G', take({'W', u, 0, m})}));
      case ActionKind::ZeroGrad: return put({'G', u, 0, 0}, 0);
      case ActionKind::AllReduce:
      case ActionKind::ReduceScatter: {
        const Hash sum = take({'G', u, 0, 0});  // linear, so that one reduction and several give the same
        values_[{'R', u, 0, 0}] += sum;
        return;
      }
      case ActionKind::AllReduceShard:
        return put({'R', u, 0, 0}, hash({'A', take({'R', u, 0, 0})}));
      case ActionKind::Unshard:
        if (zero_ == 0) throw Failure{"nothing is divided"};
        return put({'p', u, 0, 0}, get({'h', u, 0, 0}));
      case ActionKind::Reshard: return void(take({'p', u, 0, 0}));
      case ActionKind::ReduceLoss: return put({'M', 0, 0, 0}, hash({'M', take({'l', 0, 0, 0})}));
      case ActionKind::GradNorm: {
        Hash sum = get({'M', 0, 0, 0});
        for (int v = 0; v < kUnits; ++v) sum += mix(get({'R', v, 0, 0}));
        return put({'N', 0, 0, 0}, sum);
      }
      case ActionKind::ClipGrad:
        for (int v = 0; v < kUnits; ++v) {
          put({'R', v, 0, 0}, hash({'C', take({'R', v, 0, 0}), get({'N', 0, 0, 0}), get({'M', 0, 0, 0})}));
        }
        return;
      case ActionKind::OptimizerStep: return step(a);
      case ActionKind::ReloadOptimizer: return put({'m', u, 0, 0}, take({'H', u, 0, 0}));
      case ActionKind::OffloadOptimizer: return put({'H', u, 0, 0}, take({'m', u, 0, 0}));
      default: throw Failure{"an action that this world does not run"};
    }
  }

  void step(const Action& a) {
    const int u = a.unit;
    const Hash moments = hash({'m', take({'m', u, 0, 0}), get({'R', u, 0, 0})});
    const Hash next = hash({'O', take({'h', u, 0, 0}), take({'R', u, 0, 0}), moments, Hash{a.if_finite()}});
    put({'m', u, 0, 0}, moments);
    put({'h', u, 0, 0}, next);
    if (zero_ == 0) values_[{'p', u, 0, 0}] = next;
    if (zero_ > 0) values_.erase({'p', u, 0, 0});  // old now: using it is undefined
  }

  const Program& program_;
  std::int64_t zero_;
  char moments_;      // where they are between programs: 'm', or 'H' in host memory
  bool stays_whole_;  // parameters, from program to program
  std::map<Key, Hash> values_;
};

}  // namespace

std::string name(const UnitShape& s) {
  return "zero" + std::to_string(s.zero) + (s.by_microbatch ? "_microbatch" : "") + (s.split ? "_split" : "") +
         (s.recompute ? "_recompute" : "") + (s.before_use ? "_before_use" : "") + (s.groups ? "_groups" : "") +
         (s.offload ? "_offload" : "");
}

std::vector<UnitShape> all_unit_shapes() {
  std::vector<UnitShape> shapes;
  for (int zero = 0; zero < 4; ++zero) {
    for (const bool by_microbatch : {false, true}) {
      for (const bool split : {false, true}) {
        for (const bool recompute : {false, true}) {
          shapes.push_back({zero, by_microbatch, split, recompute});
          shapes.push_back({zero, by_microbatch, split, recompute});
          shapes.back().offload = true;
          if (zero == 0) continue;
          shapes.push_back({zero, by_microbatch, split, recompute, true, recompute});
          shapes.push_back({zero, by_microbatch, split, recompute, false, true});
        }
      }
    }
  }
  return shapes;
}

Plan unit_plan(const UnitShape& shape) {
  Plan plan;
  plan.settings.model = {.layers = kUnits - 2, .hidden = 8, .intermediate = 16, .heads = 2, .vocab = 16};
  plan.settings.parallel.dp = shape.groups ? 4 : 2;
  plan.settings.parallel.shard = shape.groups ? 2 : 0;
  plan.settings.parallel.gather = shape.before_use ? "forward" : "update";
  plan.settings.parallel.zero = shape.zero;
  plan.settings.memory.offload = shape.offload ? "optimizer" : "none";
  plan.settings.parallel.reduce = shape.by_microbatch ? "microbatch" : "step";
  plan.settings.batch = {.global = plan.settings.parallel.dp * shape.microbatches, .micro = 1, .seq_len = 4};
  plan.level = Level::Unit;
  plan.stages = {{.pp = 0, .first_unit = 0, .units = kUnits}};
  plan.programs = {Writer(shape).train(), Writer(shape).eval()};
  return plan;
}

UnitResult run_units(const Plan& plan, const Program& program) { return UnitWorld(plan, program).run(); }

}  // namespace fem::ir::testing
