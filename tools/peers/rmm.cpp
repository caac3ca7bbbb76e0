// SPDX-License-Identifier: Apache-2.0
//
// RMM 25.10: its arena, its pool, and its pool with limit, statistics and tracking. The
// arena and the pool take their memory before they are measured; only where growth is to be
// seen the pool begins with little. The arena cannot grow.

#include "cuda.hpp"
#include "loops.hpp"

#include <rmm/mr/device/arena_memory_resource.hpp>
#include <rmm/mr/device/cuda_memory_resource.hpp>
#include <rmm/mr/device/limiting_resource_adaptor.hpp>
#include <rmm/mr/device/pool_memory_resource.hpp>
#include <rmm/mr/device/statistics_resource_adaptor.hpp>
#include <rmm/mr/device/tracking_resource_adaptor.hpp>

#include <memory>

namespace {

using Resource = rmm::mr::device_memory_resource;

constexpr size_t whole = size_t(32) << 30, little = size_t(32) << 20;

rmm::mr::cuda_memory_resource &device() {
	static rmm::mr::cuda_memory_resource resource;
	return resource;
}

struct Arena {
	rmm::mr::arena_memory_resource<Resource> arena{&device(), whole};
	Resource &top = arena;
};

template <size_t initial>
struct Pool {
	rmm::mr::pool_memory_resource<Resource> pool{&device(), initial};
	Resource &top = pool;
};

template <size_t initial>
struct Decorated {
	rmm::mr::pool_memory_resource<Resource> pool{&device(), initial};
	rmm::mr::limiting_resource_adaptor<Resource> limiting{&pool, whole};
	rmm::mr::statistics_resource_adaptor<Resource> statistics{&limiting};
	rmm::mr::tracking_resource_adaptor<Resource> tracking{&statistics};
	Resource &top = tracking;
};

template <class Stack>
struct Peer {
	using Stream = rmm::cuda_stream_view;
	Stack stack;

	Stream stream(int thread) { return Stream{peers::streams()[thread]}; }
	void *allocate(size_t bytes, Stream s) { return stack.top.allocate_async(bytes, s); }
	void free(void *at, size_t bytes, Stream s) { stack.top.deallocate_async(at, bytes, s); }
	void finish() { peers::finish(); }
};

template <class Stack>
auto maker() {
	return [] { return std::make_unique<Peer<Stack>>(); };
}

}  // namespace

int main() {
	bool good = false;
	peers::attempt("rmm", [&] {
		peers::check(cudaSetDevice(0), "cudaSetDevice");
		peers::check(cudaFree(nullptr), "cudaFree");
		good = peers::measure("rmm-arena", maker<Arena>(), maker<Arena>());
		good &= peers::measure("rmm-pool", maker<Pool<whole>>(), maker<Pool<little>>());
		good &= peers::measure("rmm-pool-decorated", maker<Decorated<whole>>(), maker<Decorated<little>>());
	});
	return good ? 0 : 1;
}
