// Defines CUDA's keywords to compile emitted kernels for CPUs. All threads of all blocks
// run one at a time. Barriers and shared memory, which the kernels do not use, are not
// supported.
#ifndef TOFU_TESTS_CPP_KERNELS_EMITTED_CUDA_ON_CPU_H_
#define TOFU_TESTS_CPP_KERNELS_EMITTED_CUDA_ON_CPU_H_

namespace tofu_cuda {

struct Index3 {
  unsigned int x = 0;
};
inline Index3 block_index;
inline Index3 thread_index;
inline Index3 grid_size;
inline int only_block = -1;  // -1: all blocks run

// Runs `thread` as a grid of blocks.
template <typename Thread>
void Launch(int blocks, int threads, const Thread& thread) {
  grid_size.x = static_cast<unsigned int>(blocks);
  for (block_index.x = 0; block_index.x < grid_size.x; ++block_index.x) {
    if (only_block >= 0 && block_index.x != static_cast<unsigned int>(only_block))
      continue;
    for (thread_index.x = 0; thread_index.x < static_cast<unsigned int>(threads);
         ++thread_index.x) {
      thread();
    }
  }
}

}  // namespace tofu_cuda

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(threads)
#define threadIdx tofu_cuda::thread_index
#define blockIdx tofu_cuda::block_index
#define gridDim tofu_cuda::grid_size

#endif  // TOFU_TESTS_CPP_KERNELS_EMITTED_CUDA_ON_CPU_H_
