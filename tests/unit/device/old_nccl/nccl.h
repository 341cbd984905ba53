// NCCL's header as it was before 2.27, for what this library asks of it.
#pragma once
#include_next <nccl.h>
#undef NCCL_SHRINK_ABORT
#undef NCCL_REVOKE_DEFAULT
