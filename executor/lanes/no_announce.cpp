#include "executor/lanes/announce.hpp"

namespace fem::exec {

Announcer::Announcer(const ir::Plan&, std::size_t, std::size_t) {}
void Announcer::announce(std::size_t) const {}

}  // namespace fem::exec
