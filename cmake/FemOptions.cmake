# Compiler options of our own code. Third-party headers are SYSTEM and stay out of the warnings.
set(FEM_SANITIZE "" CACHE STRING "sanitizers of the build: empty, address,undefined or thread")

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  # A precompiled header names its macros and times; ccache needs to be told that they may differ.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})
endif()

add_library(fem_options INTERFACE)
target_compile_options(fem_options INTERFACE -Wall -Wextra -Werror -Wswitch -Wno-missing-field-initializers)
target_include_directories(fem_options INTERFACE ${PROJECT_SOURCE_DIR})
if(FEM_SANITIZE)
  target_compile_options(fem_options INTERFACE -fsanitize=${FEM_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(fem_options INTERFACE -fsanitize=${FEM_SANITIZE})
endif()

# fem_library(name SOURCES... LINK...): a static library from every *.cpp of the calling folder but commands, or from SOURCES.
function(fem_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC fem_options ${ARG_LINK})
endfunction()
