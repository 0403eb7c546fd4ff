// What most tests read; see reprise_precompile in cmake/reprise.cmake.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "cmake/precompiled/product.h"
