# Libraries. What is missing and needed stops here with one line; what may be missing is left out, and its no_*.cpp is
# built.

# fem_require(package debian_package): find_package, or one line that says what to install.
macro(fem_require package debian)
  find_package(${package} QUIET)
  if(NOT ${package}_FOUND)
    message(FATAL_ERROR "femtotron: ${package} not found: install the Debian package ${debian}")
  endif()
endmacro()

fem_require(yaml-cpp libyaml-cpp-dev)
fem_require(fmt libfmt-dev)
fem_require(CLI11 libcli11-dev)
fem_require(nlohmann_json nlohmann-json3-dev)
fem_require(Boost libboost-graph-dev)
find_package(Threads REQUIRED)

# LibTorch of the pinned wheel, through imported targets of our own: find_package(Torch) on a CUDA wheel fails where no
# toolkit is installed.
set(FEM_TORCH_DIR "" CACHE PATH "site-packages/torch of the pinned wheel")
if(NOT EXISTS "${FEM_TORCH_DIR}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "femtotron: LibTorch not found at FEM_TORCH_DIR='${FEM_TORCH_DIR}': run tests/run.sh or "
                      "examples/quickstart.sh, which install the pinned torch wheel and configure with it")
endif()
get_filename_component(FEM_SITE_PACKAGES "${FEM_TORCH_DIR}" DIRECTORY)
set(FEM_WHEEL_LIB_DIRS ${FEM_SITE_PACKAGES}/nvidia/cu13/lib)

# The python that owns the wheel, for tests that compare with PyTorch.
get_filename_component(FEM_PYTHON "${FEM_SITE_PACKAGES}/../../../bin/python" ABSOLUTE)

add_library(fem_torch INTERFACE)
target_include_directories(fem_torch SYSTEM INTERFACE
  ${FEM_TORCH_DIR}/include ${FEM_TORCH_DIR}/include/torch/csrc/api/include)
# torch's include folder has an fmt of its own, of another version: header-only everywhere.
target_compile_definitions(fem_torch INTERFACE FMT_HEADER_ONLY=1)
target_link_libraries(fem_torch INTERFACE
  ${FEM_TORCH_DIR}/lib/libtorch_cpu.so ${FEM_TORCH_DIR}/lib/libc10.so Threads::Threads)
target_link_options(fem_torch INTERFACE
  -Wl,-rpath,${FEM_TORCH_DIR}/lib -Wl,-rpath,${FEM_WHEEL_LIB_DIRS} -Wl,--allow-shlib-undefined)

find_package(MPI QUIET COMPONENTS CXX)

# CUDA with NCCL: a library of their own, built where a toolkit of LibTorch's own CUDA version is found.
option(FEM_CUDA "build the CUDA and NCCL backend where a toolkit is found" ON)
set(FEM_HAVE_CUDA OFF)
if(NOT FEM_CUDA)
  set(FEM_NO_CUDA_REASON "FEM_CUDA is off")
else()
  find_package(CUDAToolkit QUIET)
  # The wheel's NCCL first: LibTorch brings the same one into the process.
  set(nccl ${FEM_SITE_PACKAGES}/nvidia/nccl)
  find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${nccl}/include ${CUDAToolkit_INCLUDE_DIRS})
  find_library(NCCL_LIBRARY NAMES libnccl.so.2 nccl HINTS ${nccl}/lib ${CUDAToolkit_LIBRARY_DIR})
  file(STRINGS "${FEM_TORCH_DIR}/version.py" torch_cuda REGEX "^cuda.*= '[0-9.]+'")
  string(REGEX MATCH "[0-9]+" torch_cuda_major "${torch_cuda}")
  if(NOT CUDAToolkit_FOUND)
    set(FEM_NO_CUDA_REASON "no CUDA toolkit found")
  elseif(NOT CUDAToolkit_VERSION_MAJOR STREQUAL torch_cuda_major)
    set(FEM_NO_CUDA_REASON "toolkit ${CUDAToolkit_VERSION} found, but LibTorch is built for CUDA ${torch_cuda_major}")
  elseif(NOT NCCL_INCLUDE_DIR OR NOT NCCL_LIBRARY)
    set(FEM_NO_CUDA_REASON "toolkit ${CUDAToolkit_VERSION} found, but no nccl.h or libnccl")
  else()
    set(FEM_HAVE_CUDA ON)
    add_library(fem_cuda INTERFACE)
    target_include_directories(fem_cuda SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS} ${NCCL_INCLUDE_DIR})
    target_link_libraries(fem_cuda INTERFACE
      ${NCCL_LIBRARY} CUDA::cudart ${FEM_TORCH_DIR}/lib/libc10_cuda.so ${FEM_TORCH_DIR}/lib/libtorch_cuda.so)
    target_link_options(fem_cuda INTERFACE -Wl,-rpath,${nccl}/lib)
  endif()
endif()
