// The stand-in finds mistakes in the use of other ranks' devices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bluefog_cpp/error.hpp"
#include "tests/support/gpu/cuda_process.hpp"

namespace bluefog::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Two processes on two devices; the first one shows memory and an event.
class Ipc : public ::testing::Test {
 protected:
  void SetUp() override {
    cuda_->enter(0);
    stream_ = cuda_->make_stream();
    memory_ = static_cast<std::byte*>(first_.allocate(64));
    event_ = first_.make_shared_event();
    shown_memory_ = first_.export_memory(memory_);
    shown_event_ = first_.export_event(event_);
  }
  void TearDown() override { cuda_->leave(); }

  std::shared_ptr<CudaStandIn> cuda_ = std::make_shared<CudaStandIn>(2);
  CudaProcess first_{cuda_, 1};
  CudaProcess second_{cuda_, 2};
  gpu::StreamHandle stream_ = nullptr;
  std::byte* memory_ = nullptr;
  gpu::EventHandle event_ = nullptr;
  gpu::IpcHandle shown_memory_{};
  gpu::IpcHandle shown_event_{};
};

TEST_F(Ipc, WhatIsOpenedIsTheOthers) {
  auto* const writer = cuda_->make_stream();
  cuda_->enqueue(writer, "a write", {{memory_, 64, true}}, [this] { memory_[5] = std::byte{7}; });
  first_.record(event_, writer);
  cuda_->enter(1);
  const gpu::EventHandle filled = second_.open_event(shown_event_);
  auto* const opened = static_cast<std::byte*>(second_.open_memory(shown_memory_));
  EXPECT_NE(opened, memory_);
  auto* const own = static_cast<std::byte*>(second_.allocate(1));
  second_.wait(stream_, filled);
  second_.copy(own, opened + 5, 1, stream_);
  cuda_->synchronize(stream_);
  EXPECT_EQ(*own, std::byte{7});
  second_.close_memory(opened);
  second_.free_event(filled);
  cuda_->leave();
  first_.free(memory_);
  first_.free_event(event_);
  EXPECT_THAT(cuda_->mistakes(), IsEmpty());
}

TEST_F(Ipc, WithoutTheEventItIsARace) {
  auto* const writer = cuda_->make_stream();
  cuda_->enqueue(writer, "a write", {{memory_, 64, true}}, [] {});
  auto* const own = second_.allocate(64);
  second_.copy(own, second_.open_memory(shown_memory_), 64, stream_);
  EXPECT_THAT(cuda_->mistakes(), ElementsAre(HasSubstr("race: a write and cuMemcpyAsync")));
}

TEST_F(Ipc, HandlesOfTheOwnProcess) {
  EXPECT_THROW((void)first_.open_memory(shown_memory_), CudaError);
  EXPECT_THROW((void)first_.open_event(shown_event_), CudaError);
  EXPECT_THROW((void)second_.open_memory(gpu::IpcHandle{}), CudaError);
  EXPECT_THAT(cuda_->mistakes(),
              ElementsAre(HasSubstr("cuIpcOpenMemHandle in the process that has shown it"),
                          HasSubstr("cuIpcOpenEventHandle in the process that has shown it"),
                          HasSubstr("cuIpcOpenMemHandle of nothing that was shown")));
}

TEST_F(Ipc, ClosedTwiceAndUsedAfterwards) {
  void* const opened = second_.open_memory(shown_memory_);
  const gpu::EventHandle filled = second_.open_event(shown_event_);
  second_.close_memory(opened);
  second_.close_memory(opened);
  second_.close_memory(memory_);
  second_.free_event(filled);
  second_.wait(stream_, filled);
  second_.copy(second_.allocate(4), opened, 4, stream_);
  EXPECT_THAT(cuda_->mistakes(),
              ElementsAre(HasSubstr("cuIpcCloseMemHandle of what was closed"),
                          HasSubstr("cuIpcCloseMemHandle of what was not opened"),
                          HasSubstr("cuStreamWaitEvent uses what another process has shown"),
                          HasSubstr("cuStreamWaitEvent for an event that another process has not"),
                          HasSubstr("cuMemcpyAsync uses what another process has shown")));
}

TEST_F(Ipc, WaitingForWhatWasNotRecorded) {
  second_.wait(stream_, second_.open_event(shown_event_));
  first_.wait(stream_, event_);  // its owner may
  EXPECT_THAT(cuda_->mistakes(),
              ElementsAre(HasSubstr("an event that another process has not recorded")));
}

TEST_F(Ipc, FreedWhileAnotherProcessHasItOpen) {
  (void)second_.open_memory(shown_memory_);
  (void)second_.open_event(shown_event_);
  first_.free(memory_);
  first_.free_event(event_);
  EXPECT_THAT(cuda_->mistakes(),
              ElementsAre(HasSubstr("cuMemFree of what another process has open"),
                          HasSubstr("cuEventDestroy of what another process has open")));
}

TEST_F(Ipc, OnlyEventsThatWereMadeForItAreShown) {
  (void)first_.export_event(first_.make_event());
  EXPECT_THROW((void)first_.export_memory(memory_ + 1), CudaError);
  EXPECT_THAT(cuda_->mistakes(), ElementsAre(HasSubstr("an event that was not made for it"),
                                             HasSubstr("what cuMemAlloc has not returned")));
}

TEST_F(Ipc, MemoryOfADeviceThatIsNotReached) {
  cuda_->enter(1);
  void* const own = cuda_->allocate(8);
  cuda_->copy(own, memory_, 4, stream_);
  EXPECT_THAT(
      cuda_->mistakes(),
      ElementsAre(HasSubstr("on device 1 uses memory of device 0, which it does not reach")));
  cuda_->reach(0);
  cuda_->copy(own, memory_, 4, stream_);
  EXPECT_EQ(cuda_->mistakes().size(), 1U);
  cuda_->leave();
}

}  // namespace
}  // namespace bluefog::testing
