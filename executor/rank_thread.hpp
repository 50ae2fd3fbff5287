// What every thread that computes for a rank has in force.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>

namespace fem::exec {

class RankThread {
 public:
  RankThread() { at::set_num_threads(1); }  // the promise of equal bits holds for one thread a rank

 private:
  at::AutoDispatchBelowADInplaceOrView no_tape_;  // operators skip the layers that would record for autograd
};

}  // namespace fem::exec
