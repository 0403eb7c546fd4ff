#include "engine/base/mutex.h"

#include <gtest/gtest.h>

#include <thread>

namespace reprise {
namespace {

TEST(MutexTest, OneThreadAtATime) {
  Mutex mu;
  int count = 0;
  auto add = [&] {
    for (int i = 0; i < 10'000; ++i) {
      MutexLock lock(mu);
      ++count;
    }
  };
  std::thread a(add), b(add);
  a.join();
  b.join();
  EXPECT_EQ(count, 20'000);
}

TEST(CondVarTest, WakesTheWaiter) {
  Mutex mu;
  CondVar cv;
  bool ready = false;
  std::thread waker([&] {
    MutexLock lock(mu);
    ready = true;
    cv.NotifyAll();
  });
  {
    MutexLock lock(mu);
    while (!ready) cv.Wait(mu);
  }
  waker.join();
  EXPECT_TRUE(ready);
}

TEST(CondVarTest, GivesUpAfterTheTimeout) {
  Mutex mu;
  CondVar cv;
  MutexLock lock(mu);
  while (cv.WaitFor(mu, /*timeout_ms=*/1)) {
  }
}

}  // namespace
}  // namespace reprise
