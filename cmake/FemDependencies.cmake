# Libraries. What is missing and needed stops here with one line; what may be missing is left out and its no_*.cpp built.
find_package(yaml-cpp REQUIRED)
find_package(fmt REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(Boost REQUIRED)
find_package(Threads REQUIRED)

# LibTorch of the pinned wheel, through imported targets of our own: find_package(Torch) on a CUDA wheel fails where no
# toolkit is installed.
set(FEM_TORCH_DIR "" CACHE PATH "site-packages/torch of the pinned wheel")
if(NOT EXISTS "${FEM_TORCH_DIR}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "LibTorch not found at FEM_TORCH_DIR='${FEM_TORCH_DIR}': run tests/run.sh or examples/quickstart.sh, "
                      "which install the pinned torch wheel and configure with it")
endif()
get_filename_component(FEM_SITE_PACKAGES "${FEM_TORCH_DIR}" DIRECTORY)
set(FEM_WHEEL_LIB_DIRS ${FEM_SITE_PACKAGES}/nvidia/cu13/lib)

add_library(fem_torch INTERFACE)
target_include_directories(fem_torch SYSTEM INTERFACE
  ${FEM_TORCH_DIR}/include ${FEM_TORCH_DIR}/include/torch/csrc/api/include)
# torch's include folder has an fmt of its own, of another version: header-only everywhere.
target_compile_definitions(fem_torch INTERFACE FMT_HEADER_ONLY=1)
target_link_libraries(fem_torch INTERFACE
  ${FEM_TORCH_DIR}/lib/libtorch_cpu.so ${FEM_TORCH_DIR}/lib/libc10.so Threads::Threads)
target_link_options(fem_torch INTERFACE
  -Wl,-rpath,${FEM_TORCH_DIR}/lib -Wl,-rpath,${FEM_WHEEL_LIB_DIRS} -Wl,--allow-shlib-undefined)

find_package(MPI COMPONENTS CXX)

# CUDA with NCCL: a library of their own, built where a toolkit is found.
option(FEM_CUDA "build the CUDA and NCCL backend where a toolkit is found" ON)
set(FEM_HAVE_CUDA OFF)
if(FEM_CUDA)
  find_package(CUDAToolkit QUIET)
  find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ${FEM_SITE_PACKAGES}/nvidia/nccl/include)
  find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${CUDAToolkit_LIBRARY_DIR} ${FEM_SITE_PACKAGES}/nvidia/nccl/lib)
  if(CUDAToolkit_FOUND AND NCCL_INCLUDE_DIR AND NCCL_LIBRARY)
    set(FEM_HAVE_CUDA ON)
  endif()
endif()
