// SPDX-License-Identifier: Apache-2.0
//
// The driver's pool, called directly.

#include "cuda.hpp"
#include "loops.hpp"

#include <cuda.h>
#include <dlfcn.h>

#include <memory>

namespace {

// The two functions are looked up, so that the program needs no library to link with.
decltype(&cuMemAllocFromPoolAsync) allocate_async;
decltype(&cuMemFreeAsync) free_async;

void check(CUresult status, char const *what) {
	if (status != CUDA_SUCCESS) throw std::runtime_error(std::string(what) + ": CUDA error " + std::to_string(status));
}

template <class F>
void find(void *library, char const *name, F &f) {
	f = reinterpret_cast<F>(dlsym(library, name));
	if (!f) throw std::runtime_error(std::string("the driver has no ") + name);
}

struct Driver {
	using Stream = CUstream;
	cudaMemPool_t pool{};

	Driver() {
		cudaMemPoolProps props{};
		props.allocType = cudaMemAllocationTypePinned;
		props.location.type = cudaMemLocationTypeDevice;
		peers::check(cudaMemPoolCreate(&pool, &props), "cudaMemPoolCreate");
		uint64_t keep = UINT64_MAX;
		peers::check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep), "cudaMemPoolSetAttribute");
	}
	~Driver() {
		cudaDeviceSynchronize();
		cudaMemPoolDestroy(pool);
	}
	Stream stream(int thread) { return peers::streams()[thread]; }
	void *allocate(size_t bytes, Stream s) {
		CUdeviceptr at;
		check(allocate_async(&at, bytes, pool, s), "cuMemAllocFromPoolAsync");
		return reinterpret_cast<void *>(at);
	}
	void free(void *at, size_t, Stream s) { check(free_async(reinterpret_cast<CUdeviceptr>(at), s), "cuMemFreeAsync"); }
	void finish() { peers::finish(); }
};

}  // namespace

int main() {
	bool good = false;
	peers::attempt("driver", [&] {
		peers::check(cudaSetDevice(0), "cudaSetDevice");
		peers::check(cudaFree(nullptr), "cudaFree");
		void *library = dlopen("libcuda.so.1", RTLD_NOW);
		if (!library) throw std::runtime_error(dlerror());
		find(library, "cuMemAllocFromPoolAsync", allocate_async);
		find(library, "cuMemFreeAsync", free_async);
		auto make = [] { return std::make_unique<Driver>(); };
		good = peers::measure("driver", make, make);
	});
	return good ? 0 : 1;
}
