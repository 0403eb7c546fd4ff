// What tests over gRPC read; see reprise_precompile in cmake/reprise.cmake.
#include <grpcpp/grpcpp.h>

#include "cmake/precompiled/test.h"
#include "proto/inference.grpc.pb.h"
