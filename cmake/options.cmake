# Compiler options of our own code. Third-party headers are SYSTEM and stay out of the warnings.
set(FEM_SANITIZE "" CACHE STRING "sanitizers of the build: empty, address,undefined or thread")
set(FEM_CCACHE_DIR "" CACHE PATH "folder of ccache; empty: ccache's own default")

# -O2: -O3 takes longer to compile and the arithmetic is LibTorch's.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  # Clones share one cache: paths under the source folder are hashed as relative ones (CCACHE_BASEDIR) and the folder of
  # compilation is left out (CCACHE_NOHASHDIR). A precompiled header names its macros and times; ccache needs to be told
  # that they may differ. It hashes the locale, since messages follow it: one for all, whoever starts the build.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
    --unset=LANG --unset=LC_CTYPE --unset=LC_MESSAGES LC_ALL=C
    CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_MAXSIZE=3G)
  if(FEM_CCACHE_DIR)
    list(APPEND CMAKE_CXX_COMPILER_LAUNCHER CCACHE_DIR=${FEM_CCACHE_DIR})
  endif()
  list(APPEND CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()

# Files are named from the root of the sources in debug information and in __FILE__, wherever the clone is; ccache hands
# the compiler paths relative to the build folder.
cmake_path(RELATIVE_PATH PROJECT_SOURCE_DIR BASE_DIRECTORY ${PROJECT_BINARY_DIR} OUTPUT_VARIABLE to_source)
string(REGEX REPLACE "/$" "" to_source ${to_source})

add_library(fem_options INTERFACE)
target_include_directories(fem_options INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(fem_options INTERFACE
  -Wall -Wextra -Werror -Wswitch -Wno-missing-field-initializers
  -ffp-contract=off  # a product and a sum stay two roundings on every machine, so that bits agree
  -ffile-prefix-map=${PROJECT_SOURCE_DIR}/= -ffile-prefix-map=${to_source}/=)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(fem_options INTERFACE -fpch-preprocess)  # ccache needs it to see through a precompiled header
  if(CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # GCC 12 reports std::string's own operator+ under C++20 (GCC bugs 105329 and 105651), depending on the length of
    # the literals: whether a clone builds must not depend on its path.
    target_compile_options(fem_options INTERFACE -Wno-restrict -Wno-array-bounds)
  endif()
endif()
if(FEM_SANITIZE)
  target_compile_options(fem_options INTERFACE
    -fsanitize=${FEM_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all
    -Wno-maybe-uninitialized)  # GCC's manual: sanitizers make it report what is not so
  target_link_options(fem_options INTERFACE -fsanitize=${FEM_SANITIZE})
endif()

# fem_library(name SOURCES... LINK...): a static library.
function(fem_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC fem_options ${ARG_LINK})
endfunction()
