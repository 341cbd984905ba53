// The stand-in finds what spoils a capture on a GPU; tests of captures rely on it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <thread>

#include "bluefog_cpp/device/cuda/handles.hpp"
#include "bluefog_cpp/error.hpp"
#include "tests/support/gpu/cuda_stand_in.hpp"

namespace bluefog::testing {
namespace {

using ::testing::HasSubstr;

TEST(CaptureStandIn, FindsMistakes) {
  const auto cuda = std::make_shared<CudaStandIn>(1);
  cuda->enter(0);
  const gpu::StreamHandle stream = cuda->make_stream();
  const gpu::StreamHandle side = cuda->make_stream();
  const gpu::EventHandle outside = cuda->make_event();
  const gpu::EventHandle inside = cuda->make_event();
  cuda->record(outside, side);
  const auto mistake_of = [&](const std::function<void()>& mistake) {
    cuda->begin_capture(stream);
    EXPECT_THROW(mistake(), CudaError);
    EXPECT_EQ(cuda->capture_of(stream).status, gpu::CaptureStatus::Invalidated);
    EXPECT_THROW((void)cuda->end_capture(stream), CudaError);
    EXPECT_EQ(cuda->capture_of(side).status, gpu::CaptureStatus::None);
    return cuda->mistakes().back();
  };
  EXPECT_THAT(mistake_of([&] { (void)cuda->allocate(4); }), HasSubstr("cuMemAlloc while a stream"));
  EXPECT_THAT(mistake_of([&] { (void)cuda->has_happened(outside); }),
              HasSubstr("cuEventQuery while a stream"));
  EXPECT_THAT(mistake_of([&] {
                cuda->record(inside, stream);
                const gpu::DeviceScope scope(*cuda, 0);
                (void)cuda->has_happened(inside);
              }),
              HasSubstr("that was recorded in a capture"));
  EXPECT_THAT(mistake_of([&] { cuda->wait(stream, outside); }), HasSubstr("from outside of it"));
  EXPECT_THAT(mistake_of([&] { cuda->synchronize(stream); }), HasSubstr("cuStreamSynchronize"));
  EXPECT_THAT(mistake_of([&] {
                std::jthread([&] {
                  cuda->enter(0);
                  EXPECT_THROW((void)cuda->allocate(4), CudaError);
                  cuda->leave();
                }).join();
                cuda->record(inside, stream);
              }),
              HasSubstr("cuMemAlloc while a stream"));
  cuda->begin_capture(stream);
  cuda->record(inside, stream);
  cuda->wait(side, inside);
  EXPECT_THROW((void)cuda->end_capture(stream), CudaError);
  EXPECT_THAT(cuda->mistakes().back(), HasSubstr("not joined"));
  EXPECT_THROW(cuda->wait(side, inside), CudaError);
  EXPECT_THAT(cuda->mistakes().back(), HasSubstr("of a capture that is over"));
  cuda->leave();
}

}  // namespace
}  // namespace bluefog::testing
