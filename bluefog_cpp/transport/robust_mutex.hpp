#pragma once

#include <pthread.h>

namespace bluefog::shm {

/// Makes a mutex that processes share and that survives the end of its holder.
/// @param type PTHREAD_MUTEX_NORMAL, … @throws TransportError.
void initialize_robust(pthread_mutex_t& mutex, int type);

/// @throws TransportError with the text of `code`, unless it is 0. @param what was tried.
void check_lock(int code, const char* what);

}  // namespace bluefog::shm
