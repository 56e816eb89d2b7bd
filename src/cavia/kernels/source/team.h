// Threads that run the same function and wait for each other. They live as long as one call: nothing is left over for a
// fork, and no other library's threads are in the way.
#pragma once
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

class Team {
 public:
  explicit Team(int size) : size_(size), expected_(size) {}

  int size() const { return size_; }

  // Until all members are here.
  void wait() {
    if (size_ == 1) return;
    std::unique_lock<std::mutex> lock(mutex_);
    const long round = round_;
    if (++here_ >= expected_) {
      here_ = 0;
      round_++;
      all_here_.notify_all();
    } else {
      all_here_.wait(lock, [&] { return round_ != round; });
    }
  }

  // member(rank) on every thread; it must call `ready` first. False if memory or threads ran out.
  template <class Member>
  bool run(const Member& member) {
    auto guarded = [&](int rank) {
      try {
        member(rank);
      } catch (const std::exception&) {
        leave(1);
      }
    };
    std::vector<std::thread> others;
    try {
      for (int rank = 1; rank < size_; rank++) others.emplace_back(guarded, rank);
    } catch (const std::exception&) {
      leave(size_ - 1 - static_cast<int>(others.size()));
    }
    guarded(0);
    for (auto& other : others) other.join();
    return !failed_;
  }

  // Called by each member when it has its memory: whether all have theirs.
  bool ready() {
    wait();
    std::lock_guard<std::mutex> lock(mutex_);
    return !failed_;
  }

 private:
  // So many members will not come any more.
  void leave(int count) {
    std::lock_guard<std::mutex> lock(mutex_);
    failed_ = true;
    expected_ -= count;
    if (here_ > 0 && here_ >= expected_) {
      here_ = 0;
      round_++;
      all_here_.notify_all();
    }
  }

  const int size_;
  int expected_, here_ = 0;
  long round_ = 0;
  bool failed_ = false;
  std::mutex mutex_;
  std::condition_variable all_here_;
};
