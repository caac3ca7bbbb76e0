// SPDX-License-Identifier: Apache-2.0
//
// PyTorch's caching allocator, called directly. Its streams are PyTorch's own. There is one
// of it in a process, so memory that an earlier loop took is there for the next.

#include "cuda.hpp"
#include "loops.hpp"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include <memory>

namespace {

namespace caching = c10::cuda::CUDACachingAllocator;

struct Torch {
	using Stream = cudaStream_t;

	Stream stream(int thread) {
		static std::vector<Stream> const all = [] {
			std::vector<Stream> made;
			for (int i = 0; i < 16; i++) made.push_back(c10::cuda::getStreamFromPool());
			return made;
		}();
		return all[thread];
	}
	void *allocate(size_t bytes, Stream s) { return caching::raw_alloc_with_stream(bytes, s); }
	void free(void *at, size_t, Stream) { caching::raw_delete(at); }
	void finish() { peers::finish(); }
};

}  // namespace

int main() {
	bool good = false;
	peers::attempt("torch", [&] {
		caching::init(c10::cuda::device_count());
		c10::cuda::set_device(0);
		auto make = [] { return std::make_unique<Torch>(); };
		good = peers::measure("torch", make, [&] {
			caching::emptyCache();
			return make();
		});
	});
	return good ? 0 : 1;
}
