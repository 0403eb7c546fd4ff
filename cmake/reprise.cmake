# Helpers for the CMakeLists.txt of every folder: one static library per
# folder, executables, and tests, all with the project's flags.

include(GoogleTest OPTIONAL)

# All presets but debug compile the files of a target in groups: most of the
# time of a build goes into headers, which a group reads once. Names in unnamed
# namespaces must then differ within a target; a target whose files are alike
# on purpose turns the property UNITY_BUILD off.
set(CMAKE_UNITY_BUILD_BATCH_SIZE 20)

# GCC clears its memory up each time that it has doubled since 128 MiB, for a
# tenth of the time of such a group; it may grow to 512 MiB before the first.
if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  add_compile_options(--param=ggc-min-heapsize=524288)
endif()

# reprise_precompiled(NAME HEADER DEPS ...)
# A set of headers of others, cmake/precompiled/HEADER, compiled once for all
# targets that take it by reprise_precompile(TARGET NAME): half of the time of a
# small test went into GoogleTest and Abseil. Takers have the same flags.
# The preset debug does without, as it does without groups, and so shows that
# every file includes what it uses.
function(reprise_precompiled name header)
  cmake_parse_arguments(arg "" "" "DEPS" ${ARGN})
  add_library(${name} OBJECT ${PROJECT_SOURCE_DIR}/cmake/precompiled/empty.cc)
  target_link_libraries(${name} PRIVATE ${arg_DEPS} OpenMP::OpenMP_CXX)
  reprise_target_options(${name})
  target_precompile_headers(${name} PRIVATE
    ${PROJECT_SOURCE_DIR}/cmake/precompiled/${header})
endfunction()

function(reprise_precompile target name)
  if(CMAKE_UNITY_BUILD)
    target_precompile_headers(${target} REUSE_FROM ${name})
  endif()
endfunction()

# Sanitizers, if the preset has any. Every library of ours needs this, generated
# code too: protobuf's map fields have one member more under ThreadSanitizer, so
# that code with and without it disagrees about where the others lie.
function(reprise_sanitize target)
  if(REPRISE_SANITIZE)
    target_compile_options(${target} PRIVATE
      -fsanitize=${REPRISE_SANITIZE} -fno-sanitize-recover=all
      -fno-omit-frame-pointer)
    target_link_options(${target} PRIVATE -fsanitize=${REPRISE_SANITIZE})
  endif()
endfunction()

function(reprise_target_options target)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_definitions(${target} PRIVATE
    REPRISE_VERSION="${PROJECT_VERSION}")
  target_compile_options(${target} PRIVATE -Wall -Wextra -Werror)
  if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
    target_compile_options(${target} PRIVATE -Wthread-safety)
  endif()
  reprise_sanitize(${target})
endfunction()

# reprise_library(NAME SOURCES ... DEPS ...)
function(reprise_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS" ${ARGN})
  add_library(${name} STATIC ${arg_SOURCES})
  target_link_libraries(${name} PUBLIC ${arg_DEPS})
  reprise_target_options(${name})
  reprise_precompile(${name} reprise_headers)
endfunction()

# reprise_binary(NAME SOURCES ... DEPS ...)
function(reprise_binary name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_DEPS})
  reprise_target_options(${name})
  reprise_precompile(${name} reprise_headers)
endfunction()

# reprise_optimise(LEVEL TARGETS ...)
# For what waits more than it computes: full optimisation of command lines,
# matchers and JSON, all large templates, is a third of the time of a build.
function(reprise_optimise level)
  foreach(target ${ARGN})
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:${level}>)
  endforeach()
endfunction()

# reprise_timeout(VARIABLE SECONDS)
# How long a test of so many seconds at most may take in this build.
function(reprise_timeout variable seconds)
  if(REPRISE_SANITIZE)
    math(EXPR seconds "5 * ${seconds}")
  endif()
  set(${variable} ${seconds} PARENT_SCOPE)
endfunction()

# reprise_test(NAME SOURCES ... DEPS ... [COMPUTES] [LABELS ...]
#              [TIMEOUT seconds])
# One executable of GoogleTest cases; every case is a test of its own in ctest.
# COMPUTES: takes longer to run without optimisation than to compile with it.
function(reprise_test name)
  cmake_parse_arguments(arg "COMPUTES" "TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  reprise_timeout(arg_TIMEOUT ${arg_TIMEOUT})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE
    ${arg_DEPS} GTest::gmock GTest::gtest_main OpenMP::OpenMP_CXX)
  reprise_target_options(${name})
  if(arg_COMPUTES)
    reprise_optimise(-O1 ${name})
    reprise_precompile(${name} reprise_headers)
  else()
    reprise_optimise(-O0 ${name})
    reprise_precompile(${name} reprise_test_headers)
  endif()
  target_compile_definitions(${name} PRIVATE
    REPRISE_TESTDATA="${PROJECT_SOURCE_DIR}/tests/testdata"
    REPRISE_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
    REPRISE_BINARY_DIR="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
  # As the server sets it: with libgomp's default, tests that share the cores
  # spend most of their time waiting for each other's threads.
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 120
    PROPERTIES TIMEOUT ${arg_TIMEOUT} ENVIRONMENT GOMP_SPINCOUNT=2000
      LABELS "${arg_LABELS}")
endfunction()
