// SPDX-License-Identifier: Apache-2.0
//
// The loops that every peer runs: allocations and frees from one and from sixteen
// threads, each with a stream of its own. A result is a line as go test -bench prints
// it, and the names are those of BenchmarkGPUPeers in dev/eval/bench, which runs the
// same loops over Fencepost. Sizes, counts and seeds are to be the same there.
//
// A peer is a class with a type Stream and four functions that any thread may call:
//
//	Stream stream(int)                  the stream of a thread
//	void *allocate(size_t, Stream)
//	void free(void *, size_t, Stream)
//	void finish()                       waits for the device

#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace peers {

using Clock = std::chrono::steady_clock;

inline double seconds(Clock::time_point from) { return std::chrono::duration<double>(Clock::now() - from).count(); }

// random is a step of a linear congruential generator: the same numbers in Go.
inline uint64_t random(uint64_t &state) {
	state = state * 6364136223846793005u + 1442695040888963407u;
	return state >> 33;
}

constexpr size_t listed = 1024;  // sizes in a list; a power of two

// Sizes are what the allocations of a loop ask for, in turn.
struct Sizes {
	std::string name;
	std::vector<size_t> list;
};

inline Sizes fixed(size_t bytes) { return {std::to_string(bytes), std::vector<size_t>(listed, bytes)}; }

inline std::vector<size_t> const &common() {
	static std::vector<size_t> const sizes{256, 4 << 10, 64 << 10, 68 << 10, 1 << 20};
	return sizes;
}

// mix takes the common sizes in random order.
inline Sizes mix() {
	Sizes s{"mix", {}};
	uint64_t state = 1;
	while (s.list.size() < listed) s.list.push_back(common()[random(state) % common().size()]);
	return s;
}

// spread takes sizes from 256 bytes to 4 MiB, each octave as often as another.
inline Sizes spread() {
	Sizes s{"spread", {}};
	uint64_t state = 2;
	while (s.list.size() < listed) {
		size_t least = size_t(256) << random(state) % 14;
		s.list.push_back(least + random(state) % least);
	}
	return s;
}

inline void print(std::string const &name, char const *peer, size_t n, double ns) {
	std::printf("BenchmarkGPUPeers/%s/%s\t%zu\t%.1f ns/op\n", name.c_str(), peer, n, ns);
	std::fflush(stdout);
}

// together runs work(thread) on every thread at once and returns the seconds it took. An
// exception of one is thrown again here.
template <class Work>
double together(int threads, Work work) {
	std::atomic<int> ready{0};
	std::atomic<bool> go{false};
	std::vector<std::exception_ptr> errors(threads);
	std::vector<std::thread> all;
	for (int t = 0; t < threads; t++) {
		all.emplace_back([&, t] {
			ready++;
			while (!go) std::this_thread::yield();
			try {
				work(t);
			} catch (...) {
				errors[t] = std::current_exception();
			}
		});
	}
	while (ready < threads) std::this_thread::yield();
	auto start = Clock::now();
	go = true;
	for (auto &thread : all) thread.join();
	double took = seconds(start);
	for (auto const &error : errors) {
		if (error) std::rethrow_exception(error);
	}
	return took;
}

// Ring is the live blocks of a thread: a step frees the oldest and allocates another.
template <class Peer>
class Ring {
	struct Block {
		void *at = nullptr;
		size_t bytes = 0;
	};
	Peer &peer;
	typename Peer::Stream stream;
	std::vector<size_t> const &sizes;
	std::vector<Block> blocks;
	size_t oldest = 0, count = 0;

  public:
	// A ring begins with no blocks: its first steps only allocate.
	Ring(Peer &p, int thread, Sizes const &s, size_t live) : peer(p), stream(p.stream(thread)), sizes(s.list), blocks(live) {}
	Ring(Ring &&other) = default;
	~Ring() {
		for (auto &b : blocks) drop(b);
	}
	void step() {
		Block &b = next();
		drop(b);
		fill(b);
	}

	// timed is a step that returns the nanoseconds of its allocation.
	double timed() {
		Block &b = next();
		drop(b);
		auto start = Clock::now();
		fill(b);
		return seconds(start) * 1e9;
	}

  private:
	Block &next() {
		Block &b = blocks[oldest];
		if (++oldest == blocks.size()) oldest = 0;
		return b;
	}
	void drop(Block &b) {
		if (b.at) peer.free(b.at, b.bytes, stream);
		b.at = nullptr;
	}
	void fill(Block &b) {
		b.bytes = sizes[count++ % listed];
		b.at = peer.allocate(b.bytes, stream);
	}
};

// Shape is a loop: how many blocks each thread keeps, of what sizes, on how many threads.
struct Shape {
	size_t live;
	Sizes sizes;
	int threads;
};

template <class Peer>
std::vector<Ring<Peer>> rings(Peer &peer, Shape const &s) {
	std::vector<Ring<Peer>> all;
	all.reserve(s.threads);
	for (int t = 0; t < s.threads; t++) all.emplace_back(peer, t, s.sizes, s.live);
	return all;
}

// pairs prints the time of an allocation and its free, all threads' counted: the last of
// several runs, each longer than the one before.
template <class Peer>
void pairs(Peer &peer, char const *name, Shape const &s) {
	constexpr double enough = 0.05;  // seconds
	auto all = rings(peer, s);
	auto run = [&](size_t n) {
		return together(s.threads, [&](int t) {
			for (size_t i = 0; i < n; i++) all[t].step();
		});
	};
	size_t n = s.live + 300;
	double took = run(n);
	do {
		n = std::max(2 * n, std::min(50 * n, size_t(1.2 * double(n) * enough / std::max(took, 1e-9))));
		took = run(n);
	} while (took < enough);
	peer.finish();
	print("pair/live=" + std::to_string(s.live) + "/bytes=" + s.sizes.name + "/threads=" + std::to_string(s.threads), name,
		n * s.threads, took * 1e9 / (double(n) * s.threads));
}

// quantiles prints how long allocations took, from the first one on.
template <class Peer>
void quantiles(Peer &peer, char const *name) {
	constexpr size_t each = 20000;
	Shape const s{64, spread(), 16};
	auto all = rings(peer, s);
	std::vector<std::vector<double>> times(s.threads);
	for (auto &mine : times) mine.reserve(each);
	together(s.threads, [&](int t) {
		while (times[t].size() < each) times[t].push_back(all[t].timed());
	});
	peer.finish();
	std::vector<double> sorted;
	for (auto const &mine : times) sorted.insert(sorted.end(), mine.begin(), mine.end());
	std::sort(sorted.begin(), sorted.end());
	for (auto const &[label, of] : {std::pair{"0.5", 0.5}, {"0.999", 0.999}, {"1", 1.0}}) {
		print(std::string("allocation/quantile=") + label, name, sorted.size(), sorted[size_t(of * double(sorted.size() - 1))]);
	}
}

// attempt keeps one failure from ending the others.
template <class Work>
bool attempt(char const *name, Work work) {
	try {
		work();
		return true;
	} catch (std::exception const &e) {
		std::fprintf(stderr, "%s: %s\n", name, e.what());
		return false;
	}
}

// measure runs every loop on peers that make makes, a new one for each. growing makes one
// that begins with little memory.
template <class Make, class Growing>
bool measure(char const *name, Make make, Growing growing) {
	std::vector<Sizes> all;
	for (size_t bytes : common()) all.push_back(fixed(bytes));
	all.push_back(mix());
	bool good = true;
	for (size_t live : {1, 1000}) {
		for (auto const &sizes : all) {
			for (int threads : {1, 16}) good &= attempt(name, [&] { pairs(*make(), name, {live, sizes, threads}); });
		}
	}
	return attempt(name, [&] { quantiles(*growing(), name); }) && good;
}

}  // namespace peers
