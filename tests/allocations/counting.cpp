// The C library lets a program bring functions of its own for malloc and its kind; operator new ends there too. They
// count and hand over to the library's.
#include "counting.hpp"

#include <atomic>
#include <cerrno>
#include <cstddef>

extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* old, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);
}

namespace fem::exec::test {
namespace {

thread_local const Progress* own_progress = nullptr;
thread_local std::vector<std::int64_t>* own_counts = nullptr;

std::atomic<std::int64_t> everywhere{0};

void count() {
  everywhere.fetch_add(1, std::memory_order_relaxed);
  if (!own_progress) return;
  const std::int64_t at = own_progress->index(ir::Lane::Compute);
  ++(at < 0 ? own_counts->back() : (*own_counts)[static_cast<std::size_t>(at)]);
}

}  // namespace

Counting::Counting(const Progress& progress, std::vector<std::int64_t>& counts) {
  own_counts = &counts;
  own_progress = &progress;
}

Counting::~Counting() { own_progress = nullptr; }

std::int64_t counted_everywhere() { return everywhere.load(std::memory_order_relaxed); }

}  // namespace fem::exec::test

using fem::exec::test::count;

extern "C" {

void* malloc(std::size_t bytes) {
  count();
  return __libc_malloc(bytes);
}

void* calloc(std::size_t elements, std::size_t bytes) {
  count();
  return __libc_calloc(elements, bytes);
}

void* realloc(void* old, std::size_t bytes) {
  count();
  return __libc_realloc(old, bytes);
}

void* memalign(std::size_t alignment, std::size_t bytes) {
  count();
  return __libc_memalign(alignment, bytes);
}

void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  count();
  return __libc_memalign(alignment, bytes);
}

int posix_memalign(void** result, std::size_t alignment, std::size_t bytes) {
  count();
  *result = __libc_memalign(alignment, bytes);
  return *result ? 0 : ENOMEM;
}
}
