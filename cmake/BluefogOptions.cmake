# Every option a user may set, in one place.
option(BLUEFOG_BUILD_TESTS "Build the test suites" ON)
option(BLUEFOG_BUILD_EXAMPLES "Build the examples (needs LibTorch)" ON)
option(BLUEFOG_WARNINGS_AS_ERRORS "Treat compiler warnings as errors (presets set it)" OFF)
set(BLUEFOG_SANITIZE "" CACHE STRING "Sanitizers for every target: thread, or address,undefined")
set(BLUEFOG_WITH_MPI "AUTO" CACHE STRING "MPI transport: ON, OFF or AUTO (when found)")
set(BLUEFOG_WITH_TORCH "AUTO" CACHE STRING "Optimizers on LibTorch: ON, OFF or AUTO (when found)")
