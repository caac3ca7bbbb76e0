// SPDX-License-Identifier: Apache-2.0
//
// What the peers that are built on CUDA's runtime share.

#pragma once

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace peers {

inline void check(cudaError_t status, char const *what) {
	if (status != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

// streams are one for each thread, made once.
inline std::vector<cudaStream_t> const &streams() {
	static std::vector<cudaStream_t> const all = [] {
		std::vector<cudaStream_t> made(16);
		for (auto &s : made) check(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
		return made;
	}();
	return all;
}

inline void finish() { check(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); }

}  // namespace peers
