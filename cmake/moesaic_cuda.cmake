# Kernels of GPUs: compiled by nvcc to PTX, once for all chips, and by ptxas from that PTX to the code of
# each; so what tests execute in software is what every chip's code is made from. All of it is embedded.

set(MOESAIC_CUDA ON CACHE STRING
    "ON: build kernels for NVIDIA GPUs where a CUDA 13 compiler is found (tools/cuda.sh); REQUIRED: an error without one; OFF")
set(MOESAIC_CUDA_CHIPS "80;90a;120a" CACHE STRING
    "Chips to make code for, one or more a family; any other from sm_80 on compiles the PTX when it starts")
set(MOESAIC_CUDA_PTX_CHIP 80)
set(MOESAIC_CUDA_SCALED_PTX_CHIP 120f)  # of block_scaled/, whose instructions sm_120 and sm_121 alone have

option(MOESAIC_CUTLASS "Build libmoesaic_cutlass.so for --gpu-kernel cutlass (after tools/cutlass.sh; 2 minutes, 7 GB of memory)" OFF)

set(MOESAIC_NVCC "")
set(MOESAIC_CUDA_VERSION "")
# Goes on to the next place where `program` is a compiler of another release, as tools/cuda.sh does.
function(moesaic_is_cuda13 result program)
  execute_process(COMMAND ${program} --version OUTPUT_VARIABLE version ERROR_QUIET)
  if(NOT version MATCHES "release 13\\.")
    set(${result} FALSE PARENT_SCOPE)
  endif()
endfunction()
if(MOESAIC_CUDA)
  find_program(MOESAIC_NVCC_FOUND nvcc HINTS ${PROJECT_SOURCE_DIR}/build/cuda/toolkit/bin /usr/local/cuda/bin NO_CACHE
               VALIDATOR moesaic_is_cuda13)
  if(MOESAIC_NVCC_FOUND)
    execute_process(COMMAND ${MOESAIC_NVCC_FOUND} --version OUTPUT_VARIABLE version)
    string(REGEX MATCH "V([0-9.]+)" version "${version}")
    set(MOESAIC_CUDA_VERSION ${CMAKE_MATCH_1})
    set(MOESAIC_NVCC ${MOESAIC_NVCC_FOUND})
    get_filename_component(MOESAIC_CUDA_BIN ${MOESAIC_NVCC} DIRECTORY)
  endif()
  if(MOESAIC_NVCC)
    message(STATUS "GPU parts: ${MOESAIC_NVCC}, chips ${MOESAIC_CUDA_CHIPS}")
  elseif(MOESAIC_CUDA STREQUAL "REQUIRED")
    message(FATAL_ERROR "No CUDA 13 compiler: tools/cuda.sh installs one; -DMOESAIC_CUDA=ON builds without GPU kernels where there is none")
  else()
    message(STATUS "GPU parts not built: no CUDA 13 compiler (tools/cuda.sh installs one)")
  endif()
endif()

# libmoesaic_cutlass.so, which the program loads while it runs: CUTLASS's kernels for sm_100a and sm_103a with the
# CUDA runtime that its host code wants. One source at a time; machine code stays beside it for the test that reads it.
function(moesaic_cutlass_library source)
  set(cutlass ${PROJECT_SOURCE_DIR}/build/cutlass)
  if(NOT MOESAIC_NVCC OR NOT EXISTS ${cutlass}/include/cutlass/cutlass.h)
    message(FATAL_ERROR "MOESAIC_CUTLASS=ON wants a CUDA 13 compiler and CUTLASS's headers: tools/cuda.sh and tools/cutlass.sh install them")
  endif()
  set_property(GLOBAL APPEND PROPERTY JOB_POOLS moesaic_cutlass=1)
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/cutlass)
  file(MAKE_DIRECTORY ${folder}/code)
  add_custom_command(OUTPUT ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/libmoesaic_cutlass.so
    COMMAND ${MOESAIC_NVCC} -std=c++17 -O3 -DNDEBUG --expt-relaxed-constexpr -isystem ${cutlass}/include -isystem ${cutlass}/cccl
            -I ${PROJECT_SOURCE_DIR} -gencode arch=compute_100a,code=sm_100a -gencode arch=compute_103a,code=sm_103a
            -Werror all-warnings -Xptxas --warn-on-spills -shared -cudart static -Xcompiler -fPIC,-fvisibility=hidden -Xlinker --exclude-libs=ALL
            -keep -keep-dir ${folder}/code -MD -MF ${folder}/library.d
            -o ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/libmoesaic_cutlass.so ${CMAKE_CURRENT_SOURCE_DIR}/${source}
    COMMAND find ${folder}/code -type f ! -name "*.ptx" ! -name "*.cubin" -delete
    DEPENDS ${source} DEPFILE ${folder}/library.d JOB_POOL moesaic_cutlass COMMENT "CUTLASS's kernels" VERBATIM)
  add_custom_target(moesaic_cutlass ALL DEPENDS ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/libmoesaic_cutlass.so)
  install(FILES ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/libmoesaic_cutlass.so DESTINATION ${CMAKE_INSTALL_LIBDIR})
endfunction()

# Compiles the .cu files (relative to the current folder) and writes a source file that has them all as
# the table `device_images()`; without a compiler an empty one.
function(moesaic_device_images output)
  set(data "")
  set(rows "")
  set(images "")
  set(index 0)
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/device)
  macro(add_image module chip is_ptx file)
    string(APPEND data "MOESAIC_EMBED(${index}, \"${file}\")\n")
    string(APPEND rows "      {\"${module}\", ${chip}, ${is_ptx}, moesaic_device_image_${index}},\n")
    list(APPEND images ${file})
    math(EXPR index "${index} + 1")
  endmacro()
  if(MOESAIC_NVCC)
    foreach(source IN LISTS ARGN)
      string(REGEX REPLACE "^cuda/(.*)\\.cu$" "\\1" module ${source})
      set(ptx_chip ${MOESAIC_CUDA_PTX_CHIP})
      set(chips ${MOESAIC_CUDA_CHIPS})
      if(module MATCHES "^block_scaled/")
        set(ptx_chip ${MOESAIC_CUDA_SCALED_PTX_CHIP})
        list(FILTER chips INCLUDE REGEX "^12[01][af]$")
      endif()
      string(REGEX REPLACE "[af]$" "" ptx_number ${ptx_chip})
      set(ptx ${folder}/${module}.ptx)
      get_filename_component(place ${ptx} DIRECTORY)
      file(MAKE_DIRECTORY ${place})
      add_custom_command(OUTPUT ${ptx}
        COMMAND ${MOESAIC_NVCC} -std=c++20 -O3 -fmad=false -Werror all-warnings -I ${PROJECT_SOURCE_DIR}
                -arch=compute_${ptx_chip} -ptx -MD -MF ${ptx}.d -o ${ptx} ${CMAKE_CURRENT_SOURCE_DIR}/${source}
        DEPENDS ${source} DEPFILE ${ptx}.d COMMENT "PTX of ${module}" VERBATIM)
      add_image(${module} ${ptx_number} true ${ptx})
      foreach(chip IN LISTS chips)
        string(REGEX REPLACE "[af]$" "" number ${chip})
        set(cubin ${folder}/${module}.sm_${chip}.cubin)
        add_custom_command(OUTPUT ${cubin}
          COMMAND ${MOESAIC_CUDA_BIN}/ptxas -arch=sm_${chip} --warn-on-spills --warning-as-error -o ${cubin} ${ptx}
          DEPENDS ${ptx} COMMENT "Code of ${module} for sm_${chip}" VERBATIM)
        add_image(${module} ${number} false ${cubin})
      endforeach()
    endforeach()
  endif()
  set(text "// Made by cmake/moesaic_cuda.cmake.\n#include \"kernels/cuda/mlp_products.h\"\n\n")
  if(index GREATER 0)
    string(APPEND text "#define MOESAIC_EMBED(index, file)                                            \\\n"
      "  asm(\".section .rodata\\n.balign 64\\n.hidden moesaic_device_image_\" #index \"\\n\"      \\\n"
      "      \".globl moesaic_device_image_\" #index \"\\nmoesaic_device_image_\" #index \":\\n\"  \\\n"
      "      \".incbin \\\"\" file \"\\\"\\n.byte 0\\n.previous\");                               \\\n"
      "  extern \"C\" __attribute__((visibility(\"hidden\"))) const char moesaic_device_image_##index[];\n${data}\n")
    string(APPEND text "std::span<const moesaic::DeviceImage> moesaic::device_images() noexcept {\n"
      "  static const DeviceImage kImages[] = {\n${rows}  };\n  return kImages;\n}\n")
  else()
    string(APPEND text "std::span<const moesaic::DeviceImage> moesaic::device_images() noexcept {\n  return {};\n}\n")
  endif()
  string(APPEND text "std::string_view moesaic::device_toolkit() noexcept {\n"
    "  return \"${MOESAIC_CUDA_VERSION}\";\n}\n")
  file(CONFIGURE OUTPUT ${output} CONTENT "${text}" @ONLY)
  set_source_files_properties(${output} PROPERTIES OBJECT_DEPENDS "${images}")
endfunction()
