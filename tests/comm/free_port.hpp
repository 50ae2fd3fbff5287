// A port of the loopback address that nobody listens on.
#pragma once

namespace fem::exec::test {

int free_port();

}  // namespace fem::exec::test
