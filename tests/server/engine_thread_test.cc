#include "server/engine_thread.h"

#include <gtest/gtest.h>

#include <memory>
#include <new>
#include <string>
#include <thread>

#include "tests/support/fake_engine.h"

namespace reprise {
namespace {

using Loaded = absl::StatusOr<std::unique_ptr<Engine>>;

TEST(EngineThreadTest, ModelThatDoesNotFitInMemoryIsAnErrorNotTheEnd) {
  EngineThread thread(/*threads=*/1,
                      []() -> Loaded { throw std::bad_alloc(); });
  const Loaded loaded = thread.Take();
  EXPECT_EQ(loaded.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(loaded.status().message(),
            "the model does not fit in this machine's memory");
}

TEST(EngineThreadTest, LoadsAndWorksOnOneThread) {
  std::thread::id loading, working;
  {
    EngineThread thread(/*threads=*/1, [&loading]() -> Loaded {
      loading = std::this_thread::get_id();
      return std::make_unique<FakeEngine>(FakeEngine::Options());
    });
    EXPECT_TRUE(thread.Take().ok());
    thread.Run([&working] { working = std::this_thread::get_id(); });
  }
  EXPECT_EQ(loading, working);
  EXPECT_NE(loading, std::this_thread::get_id());
}

}  // namespace
}  // namespace reprise
