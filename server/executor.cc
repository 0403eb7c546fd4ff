#include "server/executor.h"

#include <utility>

#include "engine/base/log.h"

namespace reprise {

ThreadPool::ThreadPool(int threads) {
  CHECK(threads >= 1);
  try {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this] { Work(); });
    }
  } catch (...) {
    Stop();  // or the threads that there are would end the process
    throw;
  }
}

ThreadPool::~ThreadPool() { Stop(); }

void ThreadPool::Stop() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
    wake_.NotifyAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::Run(std::function<void()> task) {
  MutexLock lock(mu_);
  tasks_.push_back(std::move(task));
  wake_.NotifyOne();
}

void ThreadPool::Work() {
  mu_.Lock();
  while (true) {
    // A running task may still add tasks, so the last one to finish decides.
    while (tasks_.empty() && !(stopping_ && running_ == 0)) wake_.Wait(mu_);
    if (tasks_.empty()) break;
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    ++running_;
    mu_.Unlock();
    task();
    task = nullptr;  // destroys what it holds outside the lock
    mu_.Lock();
    --running_;
    if (stopping_) wake_.NotifyAll();
  }
  mu_.Unlock();
}

}  // namespace reprise
