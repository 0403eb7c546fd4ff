#include "server/turn_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace reprise {
namespace {

using testing::ElementsAre;

std::unique_ptr<Turn> MakeTurn(std::string tenant, std::string id,
                               size_t prompt_tokens = 1) {
  TurnRequest request;
  request.tenant = std::move(tenant);
  request.request_id = std::move(id);
  request.prompt.resize(prompt_tokens);
  return std::make_unique<Turn>(std::move(request), nullptr);
}

std::vector<std::string> PopAll(TurnQueue& queue) {
  std::vector<std::string> ids;
  while (std::unique_ptr<Turn> turn = queue.Pop()) {
    ids.push_back(turn->request.request_id);
  }
  return ids;
}

TEST(TurnQueueTest, OneTenantIsFirstComeFirstServed) {
  TurnQueue queue;
  for (const char* id : {"1", "2", "3"}) queue.Push(MakeTurn("a", id));
  EXPECT_EQ(queue.Front()->request.request_id, "1");
  EXPECT_THAT(PopAll(queue), ElementsAre("1", "2", "3"));
  EXPECT_EQ(queue.Front(), nullptr);
}

TEST(TurnQueueTest, TenantsTakeTurns) {
  TurnQueue queue;
  for (const char* id : {"a1", "a2", "a3"}) queue.Push(MakeTurn("a", id));
  queue.Push(MakeTurn("b", "b1"));
  for (const char* id : {"c1", "c2"}) queue.Push(MakeTurn("c", id));
  EXPECT_THAT(PopAll(queue), ElementsAre("a1", "b1", "c1", "a2", "c2", "a3"));
}

TEST(TurnQueueTest, WhatIsPutBackKeepsItsPlace) {
  TurnQueue queue;
  for (const char* id : {"a1", "a2", "a3"}) queue.Push(MakeTurn("a", id));
  queue.Push(MakeTurn("b", "b1"));
  std::unique_ptr<Turn> a1 = queue.Pop();
  std::unique_ptr<Turn> b1 = queue.Pop();
  std::unique_ptr<Turn> a2 = queue.Pop();
  queue.PutBack(std::move(a1));
  queue.PutBack(std::move(a2));
  queue.PutBack(std::move(b1));
  EXPECT_EQ(queue.size(), 4);
  EXPECT_THAT(PopAll(queue), ElementsAre("b1", "a1", "a2", "a3"));
}

TEST(TurnQueueTest, CountsRequestsAndTokens) {
  TurnQueue queue;
  queue.Push(MakeTurn("a", "1", /*prompt_tokens=*/10));
  queue.Push(MakeTurn("b", "2", /*prompt_tokens=*/5));
  EXPECT_EQ(queue.size(), 2);
  EXPECT_EQ(queue.prompt_tokens(), 15);
  queue.Pop();
  EXPECT_EQ(queue.size(), 1);
  EXPECT_EQ(queue.prompt_tokens(), 5);
}

TEST(TurnQueueTest, TakesOutThoseAskedForAndKeepsTheOthersInOrder) {
  TurnQueue queue;
  for (const char* id : {"a1", "a2", "a3"}) queue.Push(MakeTurn("a", id));
  queue.Push(MakeTurn("b", "b1"));
  const auto removed = queue.RemoveIf([](const Turn& turn) {
    return turn.request.request_id == "a2" || turn.request.tenant == "b";
  });
  EXPECT_EQ(removed.size(), 2u);
  EXPECT_EQ(queue.size(), 2);
  EXPECT_EQ(queue.prompt_tokens(), 2);
  EXPECT_THAT(PopAll(queue), ElementsAre("a1", "a3"));
}

}  // namespace
}  // namespace reprise
