#include "server/executor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "engine/base/mutex.h"
#include "tests/support/manual_executor.h"

namespace reprise {
namespace {

TEST(ThreadPoolTest, RunsEveryTaskOnce) {
  std::atomic<int> count{0};
  {
    ThreadPool pool(/*threads=*/3);
    for (int i = 0; i < 1000; ++i) pool.Run([&] { ++count; });
  }
  EXPECT_EQ(count, 1000);
}

TEST(ThreadPoolTest, OneThreadKeepsTheOrder) {
  std::vector<int> order;
  {
    ThreadPool pool(/*threads=*/1);
    for (int i = 0; i < 100; ++i) pool.Run([&, i] { order.push_back(i); });
  }
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[i], i);
}

TEST(ThreadPoolTest, ABlockedTaskDoesNotHoldUpTheOthers) {
  Mutex mu;
  CondVar changed;
  bool second_ran = false;
  ThreadPool pool(/*threads=*/2);
  pool.Run([&] {
    MutexLock lock(mu);
    while (!second_ran) changed.Wait(mu);
  });
  pool.Run([&] {
    MutexLock lock(mu);
    second_ran = true;
    changed.NotifyAll();
  });
}

TEST(ThreadPoolTest, TasksMayAddTasksUntilTheEnd) {
  std::atomic<int> count{0};
  {
    ThreadPool pool(/*threads=*/2);
    pool.Run([&] {
      ++count;
      pool.Run([&] {
        ++count;
        pool.Run([&] { ++count; });
      });
    });
  }
  EXPECT_EQ(count, 3);
}

TEST(ManualExecutorTest, RunsTasksInTheChosenOrder) {
  ManualExecutor executor;
  std::vector<int> order;
  for (int i = 0; i < 3; ++i) executor.Run([&, i] { order.push_back(i); });
  EXPECT_EQ(executor.waiting(), 3u);
  EXPECT_TRUE(executor.RunTask(/*index=*/1));
  EXPECT_FALSE(executor.RunTask(/*index=*/2));
  EXPECT_EQ(executor.RunAll(), 2);
  EXPECT_EQ(order, (std::vector<int>{1, 0, 2}));
}

}  // namespace
}  // namespace reprise
